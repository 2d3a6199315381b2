"""The ends of guests' logs, read again while their pods write."""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import aclosing, suppress

from windlass_agent.federation.remote_status import Guest, RemotePod
from windlass_agent.kube import Informer, Kube, KubeError
from windlass_agent.kube.resources import PODS

LOOK_SECONDS = 4.0
# How long the end of a guest is held back for the end of its log.
LAST_SECONDS = 15.0
# Of all pods of a guest together, and of how many of them.
MAX_BYTES = 8 * 1024
MAX_PODS = 4
LINES = 100


class Tails:
    """Last log lines of each workload, as in `kubectl logs --tail`."""

    def __init__(self, kube: Kube, pods: Informer[RemotePod], changed: Callable[[], None]):
        self._kube = kube
        self._pods = pods
        self._changed = changed
        self._texts: dict[str, str] = {}
        # Guests whose pods had ended when their logs were read, and since when others are over.
        self._complete: set[str] = set()
        self._over: dict[str, float] = {}
        self._hurry = asyncio.Event()

    def of(self, workload_id: str) -> str:
        """The end of a guest's log; empty before it has one."""
        return self._texts.get(workload_id, "")

    def is_last(self, guest: Guest) -> bool:
        """Returns True if nothing is to be added to the log of a guest that has ended."""
        if guest.uid in self._complete:
            return True
        since = self._over.setdefault(guest.uid, time.monotonic())
        self._hurry.set()
        return time.monotonic() - since > LAST_SECONDS

    async def run(self, guests: Callable[[], Sequence[Guest]]) -> None:
        """Reads until cancelled."""
        while True:
            self._hurry.clear()
            there = list(guests())
            known, uids = {guest.workload for guest in there}, {guest.uid for guest in there}
            self._texts = {name: text for name, text in self._texts.items() if name in known}
            self._over = {uid: since for uid, since in self._over.items() if uid in uids}
            self._complete &= uids
            for guest in there:
                if guest.uid not in self._complete:
                    await self._read(guest)
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._hurry.wait()
            # What has ended may not be shown whole yet.
            await asyncio.sleep(LOOK_SECONDS / 8)

    async def _read(self, guest: Guest) -> None:
        ours = [
            pod
            for pod in self._pods.items.values()
            if pod.workload == guest.workload
            and pod.has_log
            and pod.name.startswith(f"{guest.name}-")
        ]
        ours.sort(key=lambda pod: pod.name)
        # Without any, they are merely not shown yet.
        last = guest.ended and ours and all(pod.ended for pod in ours)
        several = len(ours) > 1
        parts = []
        for pod in ours[:MAX_PODS]:
            text = await self._tail(pod, MAX_BYTES // min(len(ours), MAX_PODS))
            parts.append(f"[{pod.name}]\n{text}" if several else text)
        text = "".join(parts) or self.of(guest.workload)
        news = text != self.of(guest.workload)
        if text:
            self._texts[guest.workload] = text
        if last:
            self._complete.add(guest.uid)
        if news or last:
            self._changed()

    async def _tail(self, pod: RemotePod, most: int) -> str:
        data = b""
        path = PODS.path(pod.namespace, pod.name)
        with suppress(KubeError):
            parts = self._kube.stream_log(path, container=pod.container, tail_lines=LINES)
            async with aclosing(parts):
                async for part in parts:
                    data = (data + part)[-most:]
        text = data.decode(errors="replace").replace("\0", "\ufffd")
        return text if not text or text.endswith("\n") else f"{text}\n"
