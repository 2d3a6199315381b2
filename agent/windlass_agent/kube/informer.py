"""Local copy of one kind of object, kept current by a watch."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import aclosing
from types import MappingProxyType
from typing import Generic, TypeVar

from windlass.core.backoff import Backoff
from windlass.core.telemetry import logger
from windlass_agent.kube.client import Kube
from windlass_agent.kube.errors import Expired, Forbidden, KubeError, Object, ResourceNotFound

T = TypeVar("T")

_log = logger("kube.informer")


def key_of(item: Object) -> str:
    """`namespace/name`, or `name` where there is no namespace."""
    metadata = item["metadata"]
    namespace = metadata.get("namespace")
    return f"{namespace}/{metadata['name']}" if namespace else str(metadata["name"])


class Informer(Generic[T]):
    """Objects of a path, trimmed to what their reader needs.

    Lists, then watches; lists anew whenever the watch cannot go on, so that whatever was
    missed is made good. Listeners are called after each change, and are told nothing: they
    look at `items`. An object whose trimming is None is left out.
    """

    def __init__(
        self,
        kube: Kube,
        path: str,
        *,
        label_selector: str = "",
        field_selector: str = "",
        trim: Callable[[Object], T | None],
        changed: Callable[[], None] | None = None,
    ) -> None:
        self._kube = kube
        self._path = path
        self._selectors = {"label_selector": label_selector, "field_selector": field_selector}
        self._trim = trim
        self._listeners = [changed] if changed else []
        self._items: dict[str, T] = {}
        self._backoff = Backoff(shortest=0.2, longest=5.0)
        # A kind that is not served, or not shown to us, rarely comes to be.
        self._absence = Backoff(shortest=0.5, longest=30.0)
        self.items: Mapping[str, T] = MappingProxyType(self._items)
        # Set once a first list is complete.
        self.synced = asyncio.Event()
        # Why the cluster does not show it, ResourceNotFound or Forbidden; None once it does.
        self.refused: KubeError | None = None

    def listen(self, changed: Callable[[], None]) -> None:
        """Has one more listener called."""
        self._listeners.append(changed)

    async def run(self) -> None:
        """Keeps it up to date until cancelled."""
        while True:
            try:
                await self._follow(await self._relist())
            except Expired:
                _log.debug("watch_expired", path=self._path)
            except (ResourceNotFound, Forbidden) as error:
                self._refuse(error)
                await self._absence.pause()
                continue
            except KubeError as error:
                _log.warning(
                    "watch_lost", path=self._path, reason=error.reason, message=error.message
                )
            await self._backoff.pause()

    async def _relist(self) -> str:
        """Replaces the contents; returns the resource version to continue from."""
        found: dict[str, T] = {}
        version = ""
        async with aclosing(self._kube.pages(self._path, **self._selectors)) as pages:
            async for page in pages:
                version = version or page.resource_version
                for item in page.items:
                    trimmed = self._trim(item)
                    if trimmed is not None:
                        found[key_of(item)] = trimmed
        self._items.clear()
        self._items.update(found)
        self.refused = None
        self._absence.reset()
        self.synced.set()
        self._changed()
        return version

    def _changed(self) -> None:
        for listener in self._listeners:
            listener()

    def _refuse(self, error: KubeError) -> None:
        """Says that there is nothing to see, once and not at each new try."""
        known, self.refused = self.refused, error
        if known is None or known.status != error.status:
            _log.info("watch_refused", path=self._path, reason=error.reason, message=error.message)
            # A refusal does not mean that it is gone: a server that starts has not read yet who
            # may look.
            if isinstance(error, ResourceNotFound):
                self._items.clear()
            self._changed()

    async def _follow(self, version: str) -> None:
        """Returns when only a new list can be trusted.

        A watch that ended in silence is not gone on with: after etcd was restored from a
        backup our version lies in the future, and the server would say nothing until then.
        """
        heard = True
        while heard:
            heard = False
            watch = self._kube.watch(self._path, resource_version=version, **self._selectors)
            async with aclosing(watch) as events:
                async for kind, item in events:
                    seen = item["metadata"]["resourceVersion"]
                    if _is_older(seen, version):
                        return
                    version, heard = seen, True
                    self._backoff.reset()
                    if kind != "BOOKMARK":
                        self._take(kind, item)

    def _take(self, kind: str, item: Object) -> None:
        trimmed = None if kind == "DELETED" else self._trim(item)
        if trimmed is not None:
            self._items[key_of(item)] = trimmed
        elif self._items.pop(key_of(item), None) is None:
            return
        self._changed()


def _is_older(version: str, than: str) -> bool:
    """Versions of one kind are numbers that grow, as of Kubernetes 1.35 by promise."""
    return version.isdecimal() and than.isdecimal() and int(version) < int(than)
