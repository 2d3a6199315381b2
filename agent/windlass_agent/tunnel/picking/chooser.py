"""The replica that a request goes to: a picker's where it names one that may answer."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from windlass.core import telemetry
from windlass.metrics.agent import PICK_SECONDS, PICKS
from windlass_agent.executors.kubernetes.engine_settings import PickerSettings
from windlass_agent.executors.kubernetes.engines.replicas import ServingReplica
from windlass_agent.executors.kubernetes.render.engine_pod import HEALTH_PORT
from windlass_agent.tunnel.picking.choice import UnreadBody, able, hint, named, read_body
from windlass_agent.tunnel.picking.ext_proc import PickerRefused, request_parts
from windlass_agent.tunnel.picking.picker import PickedRequest, Picker, PickerFailed

# A longer body is shown to no picker; conversations of a million tokens have more.
BODY_BYTES = 1024 * 1024
# A replica that could not be reached is no candidate for so long.
AWAY_SECONDS = 5.0

log = telemetry.logger("picker")


@dataclass(frozen=True)
class Asked:
    """A request for the model of a replica, as the gateway sent it."""

    workload_id: str
    path: str
    request_id: str
    body: bytes


@dataclass(frozen=True)
class ChosenReplica:
    """The replica for a request, and what its picker is told of the end; None without a picker."""

    workload_id: str
    picked: PickedRequest | None = None


class ReplicaChooser:
    """The pickers of a cluster. `alike` returns a replica, then those that may answer for it."""

    def __init__(
        self,
        pickers: Iterable[PickerSettings],
        alike: Callable[[str], Sequence[ServingReplica]],
    ):
        self._settings = {(one.namespace, one.model): one for one in pickers}
        self._alike = alike
        self._pickers: dict[tuple[str, str], Picker] = {}
        # Until when a replica that could not be reached is no candidate, by the loop's clock.
        self._away: dict[str, float] = {}

    def has_picker(self, workload_id: str) -> bool:
        """Returns True if a picker is asked about requests to a replica."""
        replicas = self._alike(workload_id) if self._settings else ()
        return bool(replicas) and _pool(replicas[0]) in self._settings

    async def choose(self, asked: Asked) -> ChosenReplica:
        """The replica for a request: the gateway's own unless a picker names another."""
        replicas = self._candidates(asked.workload_id)
        own = ChosenReplica(asked.workload_id)
        # Nothing is to be chosen of one alone.
        if len(replicas) < 2 or _pool(replicas[0]) not in self._settings:
            return own
        try:
            model, shown = read_body(asked.body)
        except UnreadBody:
            PICKS.labels("unread").inc()
            return own
        fit = able(replicas, model)
        if len(fit) < 2:
            return own
        parts = request_parts(asked.path, asked.request_id, shown, hint(fit, HEALTH_PORT))
        try:
            with PICK_SECONDS.time():
                endpoints, picked = await self._picker(_pool(replicas[0])).ask(parts)
        except PickerRefused as refusal:
            return _kept(own, "refused", str(refusal))
        except PickerFailed as failure:
            return _kept(own, failure.outcome, str(failure))
        replica = named(endpoints, fit)
        if replica is None:
            picked.dropped()
            return _kept(own, "unfit", f"it named {endpoints[:200]!r}")
        if replica.workload_id == asked.workload_id:
            PICKS.labels("kept").inc()
        return ChosenReplica(replica.workload_id, picked)

    def unreachable(self, choice: ChosenReplica, error: OSError) -> None:
        """Leaves a choice out for a while that cannot be reached, as its picker is told."""
        PICKS.labels("unreachable").inc()
        log.info("picked_replica_unreachable", workload=choice.workload_id, error=str(error))
        now = asyncio.get_running_loop().time()
        self._away = {one: until for one, until in self._away.items() if until > now}
        self._away[choice.workload_id] = now + AWAY_SECONDS
        if choice.picked is not None:
            choice.picked.dropped()

    def _candidates(self, workload_id: str) -> list[ServingReplica]:
        """The gateway's choice, then those that may answer for it and were not out of reach."""
        now = asyncio.get_running_loop().time()
        own, others = (found := self._alike(workload_id))[:1], found[1:]
        return [*own, *(one for one in others if self._away.get(one.workload_id, 0) <= now)]

    async def close(self) -> None:
        """Ends the connections to pickers."""
        for picker in self._pickers.values():
            await picker.close()

    def _picker(self, pool: tuple[str, str]) -> Picker:
        if pool not in self._pickers:
            self._pickers[pool] = Picker(self._settings[pool])
        return self._pickers[pool]


def _pool(replica: ServingReplica) -> tuple[str, str]:
    return replica.namespace, replica.model


def _kept(own: ChosenReplica, outcome: str, why: str) -> ChosenReplica:
    PICKS.labels(outcome).inc()
    log.info("pick_ignored", workload=own.workload_id, outcome=outcome, reason=why)
    return own
