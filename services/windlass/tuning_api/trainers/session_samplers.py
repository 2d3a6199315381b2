"""Samplers of their own: each session's prompts are spread over as many as it asked for."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Protocol

from windlass.tuning_api.trainers.port import TrainerLost
from windlass.tuning_api.trainers.records import OperationFailed, SampleRequest, Samples

# That a replica which got no seat is not asked for again.
RETRY_SECONDS = 10.0


class StartedSampler(Protocol):
    """Samples in a process of its own."""

    @property
    def is_started(self) -> bool:
        """True while the process answers."""
        ...

    async def start(self, project_id: str) -> None:
        """Has a process that answers. Raises SeatAwaited, SeatRefused, TrainerLost."""
        ...

    async def sample(self, request: SampleRequest) -> Samples | OperationFailed:
        """Continues a prompt; starts a process for it if need be. Raises what `start` does."""
        ...

    async def stop(self) -> None:
        """Ends the process, for good."""
        ...


@dataclass(eq=False)
class SamplerReplica:
    """One of the samplers of a session."""

    # From 0, among those of its session.
    number: int
    sampler: StartedSampler
    calls: int = 0
    retry_at: float = 0.0
    starting: "asyncio.Task[None] | None" = None

    @property
    def is_idle(self) -> bool:
        """True for one that nobody asks and that does not start."""
        return not self.calls and self.starting is None


@dataclass(eq=False)
class _Group:
    """The samplers of a session for one base model."""

    replicas: list[SamplerReplica] = field(default_factory=list)
    is_leaving: bool = False

    @property
    def calls(self) -> int:
        return sum(one.calls for one in self.replicas)


class SessionSamplers:
    """Has samplers made for sessions, and ends them.

    A prompt goes to the sampler that has the fewest. One more is started beside the prompts once
    all are busy, so that none waits for a seat while another sampler answers.
    """

    def __init__(self, make: Callable[[SampleRequest, int], StartedSampler], *, most: int):
        """`make` gets the number of the replica too; `most` bounds those of all sessions."""
        self._make = make
        self._most = most
        # By session and base model, the least recently used first.
        self._groups: OrderedDict[tuple[str, str], _Group] = OrderedDict()
        self._changed = asyncio.Condition()

    async def sample(self, request: SampleRequest) -> Samples | OperationFailed:
        """Continues a prompt with a sampler of its session; waits for room. Raises TrainerLost."""
        async with self._replica(request) as replica:
            return await replica.sampler.sample(request)

    async def end(self, session_id: str) -> None:
        """Ends a session's samplers, once they have answered."""
        async with self._changed:
            for key, group in list(self._groups.items()):
                if key[0] == session_id:
                    group.is_leaving = True
                    await self._end_left(key, group)

    async def stop(self) -> None:
        """Ends all of them."""
        every = [one for group in self._groups.values() for one in group.replicas]
        self._groups.clear()
        await asyncio.gather(*(_ended(one) for one in every))

    @asynccontextmanager
    async def _replica(self, request: SampleRequest) -> AsyncIterator[SamplerReplica]:
        key = request.session_id, request.base_model
        async with self._changed:
            while (found := await self._found(key, request)) is None:
                await self._changed.wait()
            group, replica = found
            replica.calls += 1
        try:
            yield replica
        finally:
            async with self._changed:
                replica.calls -= 1
                await self._end_left(key, group)
                self._changed.notify_all()

    async def _found(
        self, key: tuple[str, str], request: SampleRequest
    ) -> tuple[_Group, SamplerReplica] | None:
        group = self._groups.get(key)
        if group is None:
            if not await self._has_room():
                return None
            group = self._groups[key] = _Group([SamplerReplica(0, self._make(request, 0))])
        elif group.is_leaving:
            return None
        self._groups.move_to_end(key)
        started = [one for one in group.replicas if one.sampler.is_started]
        # Before there is any, prompts start the first one themselves, and wait for it.
        chosen = min(started or group.replicas[:1], key=lambda one: one.calls)
        if chosen.calls:
            self._grow(group, request)
        return group, chosen

    def _grow(self, group: _Group, request: SampleRequest) -> None:
        """Starts one more sampler, where the session asked for more and there is room."""
        replicas = group.replicas
        if any(one.starting is not None for one in replicas):
            return
        resting = next(
            (one for one in replicas if not one.sampler.is_started and not one.calls), None
        )
        if resting is None:
            if len(replicas) >= request.replicas or self._count() >= self._most:
                return
            number = min(set(range(request.replicas)) - {one.number for one in replicas})
            resting = SamplerReplica(number, self._make(request, number))
            replicas.append(resting)
        if asyncio.get_running_loop().time() >= resting.retry_at:
            resting.starting = asyncio.create_task(
                self._start(resting, request.project_id), name=f"sampler of {request.base_model}"
            )

    async def _start(self, replica: SamplerReplica, project_id: str) -> None:
        try:
            # Whether there is room is no matter of the prompts that have a sampler.
            with suppress(TrainerLost):
                await replica.sampler.start(project_id)
        finally:
            replica.starting = None
            if not replica.sampler.is_started:
                replica.retry_at = asyncio.get_running_loop().time() + RETRY_SECONDS

    async def _has_room(self) -> bool:
        """True if one more session may have a sampler; one that nobody asks makes room for it."""
        if self._count() < self._most:
            return True
        for key, group in self._groups.items():
            # The first one goes last, with its session's place.
            idle = next((one for one in reversed(group.replicas) if one.is_idle), None)
            if idle is not None:
                group.replicas.remove(idle)
                if not group.replicas:
                    del self._groups[key]
                await _ended(idle)
                return True
        return False

    async def _end_left(self, key: tuple[str, str], group: _Group) -> None:
        if group.is_leaving and not group.calls and self._groups.get(key) is group:
            del self._groups[key]
            await asyncio.gather(*(_ended(one) for one in group.replicas))

    def _count(self) -> int:
        return sum(len(group.replicas) for group in self._groups.values())


async def _ended(replica: SamplerReplica) -> None:
    if replica.starting is not None:
        replica.starting.cancel()
        await asyncio.wait({replica.starting})
    await replica.sampler.stop()
