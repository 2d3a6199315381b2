"""Prompts that wait to be continued, by turns over projects."""

import time
from collections import OrderedDict, deque
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path

from windlass_agent.tuning.endings import end, refusal
from windlass_agent.tuning.network.adapter import pairs
from windlass_agent.tuning.network.base import BaseNetwork
from windlass_agent.tuning.network.layout import Segment
from windlass_agent.tuning.requests.limits import TuningLimits
from windlass_agent.tuning.requests.prompts import Continuations, PromptRequest
from windlass_agent.tuning.requests.refusal import TuningRefused
from windlass_agent.tuning.sampling.continuing import Decode, PromptWork
from windlass_agent.tuning.scheduling.shares import TokenShares
from windlass_agent.tuning.state.peft_format import WEIGHTS, import_adapter

# Tokens of each continuation in a turn, which is what a training pass waits for.
_STEPS = 16


@dataclass(eq=False)
class _Waiting:
    request: PromptRequest
    future: "Future[Continuations]"
    work: PromptWork | None = None
    device_seconds: float = 0.0


class PromptSampler:
    """Continues one prompt of a project at a time; touched by the engine's thread alone.

    An exported adapter never changes, so that it is read once and kept until others need the room.
    """

    def __init__(self, base: BaseNetwork, limits: TuningLimits, decode: Decode | None):
        self._base = base
        self._limits = limits
        self._decode = decode
        self._shares = TokenShares()
        self._waiting: dict[str, deque[_Waiting]] = {}
        self._held: OrderedDict[tuple[Path, int, int], Segment] = OrderedDict()

    @property
    def waiting(self) -> int:
        """Prompts that have no result yet."""
        return sum(map(len, self._waiting.values()))

    def add(self, request: PromptRequest, future: "Future[Continuations]") -> None:
        """Queues a prompt that was checked."""
        queue = self._waiting.setdefault(request.project, deque())
        queue.append(_Waiting(request, future))

    def advance(self) -> bool:
        """Gives the least served project one turn; returns False when no prompt waits."""
        for project in [name for name, queue in self._waiting.items() if not queue]:
            del self._waiting[project]
        self._shares.observe(self._waiting)
        if not self._waiting:
            return False
        project = self._shares.least_served(self._waiting)
        waiting = self._waiting[project][0]
        try:
            if waiting.work is None and not waiting.future.set_running_or_notify_cancel():
                self._waiting[project].popleft()
                return True
            self._shares.charge(project, self._turn(waiting))
        except Exception as error:
            self._waiting[project].popleft()
            end(waiting.future, refusal(error))
            return True
        result = waiting.work.result() if waiting.work else None
        if result is not None:
            self._waiting[project].popleft()
            end(waiting.future, replace(result, device_seconds=waiting.device_seconds))
        return True

    def forget(self) -> None:
        """Drops the adapters that it keeps; they are read again."""
        self._held.clear()

    def drain(self) -> "list[Future[Continuations]]":
        """Takes every prompt that waits or is being continued."""
        left = [waiting.future for queue in self._waiting.values() for waiting in queue]
        self._waiting.clear()
        return left

    def _turn(self, waiting: _Waiting) -> int:
        began = time.perf_counter()
        if waiting.work is None:
            segment = self._segment(waiting.request.adapter)
            waiting.work = PromptWork(self._base, waiting.request, segment, self._decode)
        tokens = waiting.work.advance(_STEPS)
        waiting.device_seconds += time.perf_counter() - began
        return tokens

    def _segment(self, folder: Path | None) -> Segment | None:
        if folder is None:
            return None
        key = _identity(folder)
        if key not in self._held:
            base = self._base
            spec, tensors = import_adapter(folder, base.identity, base.layers, base.device)
            while len(self._held) >= self._limits.held_snapshots:
                self._held.popitem(last=False)
            self._held[key] = Segment(0, 0, spec.alpha / spec.rank, pairs(tensors))
        self._held.move_to_end(key)
        return self._held[key]


def _identity(folder: Path) -> tuple[Path, int, int]:
    """Names what lies in a folder now: another may have had the same name before."""
    try:
        found = (folder / WEIGHTS).stat()
    except OSError:
        raise TuningRefused("state_not_found", "there is no such adapter") from None
    return folder, found.st_ino, found.st_mtime_ns
