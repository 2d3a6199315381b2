"""Queue positions of waiting jobs, from Kueue's visibility API."""

import asyncio
from collections.abc import Callable, Iterable, Mapping

from windlass.core import telemetry
from windlass.core.backoff import Backoff
from windlass_agent.executors.kubernetes.observe.capacity import ClusterCapacity
from windlass_agent.kube import KubeError
from windlass_agent.kueue import Kueue, Workload

# Asked anew while somebody waits: a place changes when others' jobs end.
ASK_SECONDS = 2.0

log = telemetry.logger("queue_positions")


class QueuePositions:
    """`positions` by `namespace/name` of Kueue's Workloads, 1 being next."""

    def __init__(
        self,
        kueue: Kueue,
        capacity: ClusterCapacity,
        *,
        waiting: Callable[[], Iterable[Workload]],
        changed: Callable[[], None],
    ):
        self._kueue = kueue
        self._capacity = capacity
        self._waiting = waiting
        self._changed = changed
        self.positions: Mapping[str, int] = {}

    async def run(self) -> None:
        """Polls, until cancelled, the ClusterQueues in which our jobs wait."""
        backoff = Backoff(shortest=ASK_SECONDS, longest=30.0)
        while True:
            try:
                await self._ask()
                backoff.reset()
            except KubeError as error:
                log.info("queue_positions_not_read", reason=error.reason, message=error.message)
                await backoff.pause()
            await asyncio.sleep(ASK_SECONDS)

    async def _ask(self) -> None:
        ours = {f"{one.namespace}/{one.name}": one for one in self._waiting()}
        places: dict[str, int] = {}
        for queue in {self._capacity.behind(one.namespace, one.queue) for one in ours.values()}:
            if queue:
                places |= await self._kueue.pending(queue)
        found = {name: place for name, place in places.items() if name in ours}
        if found != self.positions:
            self.positions = found
            self._changed()
