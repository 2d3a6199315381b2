"""Cost of placement and turns: the ledger's own decisions, on a clock that costs nothing."""

import heapq
import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count

from windlass.tuning_api.seating.admission import Lease, Resident, admit, never_fits
from windlass.tuning_api.seating.scenario import Scenario, SimulatedWorkload
from windlass.tuning_api.seating.turns import (
    SeatTurn,
    TurnPatience,
    TurnPolicy,
    TurnState,
    charged,
    joined,
    next_turn,
)

_INSTANT = 1e-9
# One after the other, in the order that they came: what turns are compared with.
EXCLUSIVE = "exclusive"
POLICIES = (EXCLUSIVE, *(one.value for one in TurnPolicy))
Observer = Callable[["Simulation"], None]


@dataclass
class _Actor:
    """A workload on its way."""

    workload: SimulatedWorkload
    left: int
    lease_id: str = ""
    is_loaded: bool = False
    is_ready: bool = True
    is_computing: bool = False
    is_leaving_device: bool = False
    granted_at: float = 0.0
    quiet_since: float = 0.0
    room_at: float = 0.0
    waited: float = 0.0
    longest_wait_seconds: float = 0.0


@dataclass(frozen=True)
class WorkloadOutcome:
    """The end of a workload; times in seconds."""

    name: str
    finished_at: float
    waited_for_room: float
    waited_for_turns: float
    longest_wait_seconds: float


@dataclass(frozen=True)
class SimulationOutcome:
    """The end of a scenario under one policy; `refused` says why a workload never fits."""

    policy: str
    makespan: float
    mean_finish: float
    switches: int
    switching_seconds: float
    busy_share: float
    workloads: tuple[WorkloadOutcome, ...]
    refused: Mapping[str, str]


@dataclass
class Simulation:
    """One scenario under one policy."""

    scenario: Scenario
    policy: str
    observe: Observer | None = None
    now: float = 0.0
    turns: dict[str, dict[str, SeatTurn]] = field(default_factory=lambda: defaultdict(dict))
    residents: dict[str, Resident] = field(default_factory=dict)

    def __post_init__(self) -> None:
        turns, alone = self.scenario.turns, self.policy == EXCLUSIVE
        self._policy = TurnPolicy.FIFO if alone else TurnPolicy(self.policy)
        self._patience = (
            TurnPatience(math.inf, math.inf)
            if alone
            else TurnPatience(turns.turn_seconds, turns.rest_seconds)
        )
        self._leases: dict[str, Lease] = {one.id: one for one in self.scenario.leases}
        self._shares: dict[str, dict[str, float]] = defaultdict(dict)
        self._actors = {one.name: _Actor(one, one.operations) for one in self.scenario.workloads}
        self._line: list[str] = []
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._number = count()
        self._spent: dict[str, float] = defaultdict(float)
        self._ended: list[WorkloadOutcome] = []

    def run(self) -> SimulationOutcome:
        """Plays the scenario to its end."""
        refused = {}
        for actor in self._actors.values():
            one = actor.workload
            if said := never_fits(list(self._leases.values()), one.demand):
                refused[one.name] = said
            else:
                self._after(one.arrives, partial(self._arrive, actor))
        while self._events:
            self.now, _, event = heapq.heappop(self._events)
            event()
            if self.observe is not None:
                self.observe(self)
        return self._outcome(refused)

    def _after(self, seconds: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now + seconds, next(self._number), event))

    def _arrive(self, actor: _Actor) -> None:
        self._line.append(actor.workload.name)
        self._admit()

    def _admit(self) -> None:
        """Lets in who stands in line, first come, first served."""
        while self._line:
            actor = self._actors[self._line[0]]
            one = actor.workload
            lease, _ = admit(
                list(self._leases.values()),
                list(self.residents.values()),
                one.demand,
                takes_turns=True,
            )
            if lease is None:
                return
            self._line.pop(0)
            actor.lease_id, actor.room_at = lease.id, self.now
            self.residents[one.name] = Resident(lease.id, one.demand)
            turn = SeatTurn(one.name, TurnState.PARKED, one.project, served_at=self.now)
            self.turns[lease.id][one.name] = turn
            self._ask(actor)

    def _ask(self, actor: _Actor) -> None:
        there, name = self.turns[actor.lease_id], actor.workload.name
        present = {
            one.project_id
            for one in there.values()
            if one.waits or one.state is not TurnState.PARKED
        }
        shares = self._shares[actor.lease_id]
        self._shares[actor.lease_id] = joined(shares, actor.workload.project, present)
        there[name] = replace(there[name], asked_at=self.now)
        self._grant(actor.lease_id)
        for one in list(there.values()):
            if one.state is TurnState.ACTIVE:
                self._let_in(self._actors[one.seat_id])

    def _grant(self, lease_id: str) -> None:
        there = self.turns[lease_id]
        chosen = next_turn(there.values(), self._policy, self._shares[lease_id])
        if chosen is None:
            return
        actor = self._actors[chosen.seat_id]
        one, waited = actor.workload, self.now - (chosen.asked_at or 0.0)
        actor.waited += waited
        actor.longest_wait_seconds = max(actor.longest_wait_seconds, waited)
        there[one.name] = replace(chosen, state=TurnState.RESTORING, asked_at=None)
        seconds = one.restore_seconds if actor.is_loaded else one.load_seconds
        self._spent["restoring" if actor.is_loaded else "loading"] += seconds
        self._after(seconds, lambda: self._begin(actor))

    def _begin(self, actor: _Actor) -> None:
        actor.is_loaded = True
        actor.granted_at = actor.quiet_since = self.now
        self._set(actor, TurnState.ACTIVE)
        # Whoever waits at the gate is let in before it may close again.
        self._compute(actor)
        self._let_in(actor)

    def _compute(self, actor: _Actor) -> None:
        if actor.is_ready and not actor.is_computing and not actor.is_leaving_device:
            actor.is_ready, actor.is_computing = False, True
            seconds = actor.workload.operation_seconds
            self._spent["computing"] += seconds
            self._after(seconds, lambda: self._computed(actor))

    def _computed(self, actor: _Actor) -> None:
        actor.is_computing, actor.quiet_since = False, self.now
        actor.left -= 1
        if not actor.left:
            self._leave(actor)
            return
        self._after(actor.workload.rest_seconds, lambda: self._ready(actor))
        if actor.is_leaving_device:
            self._park(actor)
        else:
            self._let_in(actor)

    def _ready(self, actor: _Actor) -> None:
        actor.is_ready = True
        turn = self.turns[actor.lease_id][actor.workload.name]
        if turn.state is TurnState.ACTIVE:
            self._compute(actor)
        elif turn.state is TurnState.PARKED and not turn.waits:
            self._ask(actor)

    def _let_in(self, actor: _Actor) -> None:
        """Has an active workload leave its device, once that is due."""
        there = self.turns[actor.lease_id]
        own = there.get(actor.workload.name)
        if own is None or own.state is not TurnState.ACTIVE or actor.is_leaving_device:
            return
        if not any(one.waits for one in there.values()):
            return
        quiet = None if actor.is_computing else actor.quiet_since
        weight = self._weight(actor) if self._policy is TurnPolicy.WEIGHTED else 1.0
        left = self._patience.seconds_left(self.now, actor.granted_at, quiet, weight)
        if left > _INSTANT:
            if left < math.inf:
                self._after(left, lambda: self._let_in(actor))
            return
        actor.is_leaving_device = True
        if not actor.is_computing:
            self._park(actor)

    def _park(self, actor: _Actor) -> None:
        self._set(actor, TurnState.PARKING)
        self._spent["parking"] += actor.workload.park_seconds
        self._after(actor.workload.park_seconds, lambda: self._parked(actor))

    def _parked(self, actor: _Actor) -> None:
        actor.is_leaving_device = False
        self._set(actor, TurnState.PARKED)
        self._spent["switches"] += 1
        self._charge(actor)
        self._grant(actor.lease_id)
        if actor.is_ready:
            self._ask(actor)

    def _leave(self, actor: _Actor) -> None:
        one = actor.workload
        self._charge(actor)
        del self.turns[actor.lease_id][one.name], self.residents[one.name]
        self._ended.append(
            WorkloadOutcome(
                one.name,
                self.now,
                actor.room_at - one.arrives,
                actor.waited,
                actor.longest_wait_seconds,
            )
        )
        self._grant(actor.lease_id)
        self._admit()

    def _charge(self, actor: _Actor) -> None:
        one, shares = actor.workload, self._shares[actor.lease_id]
        seconds = self.now - actor.granted_at
        self._shares[actor.lease_id] = charged(shares, one.project, seconds, self._weight(actor))

    def _weight(self, actor: _Actor) -> float:
        return self.scenario.turns.weights.get(actor.workload.project, 1.0)

    def _set(self, actor: _Actor, state: TurnState) -> None:
        there, name = self.turns[actor.lease_id], actor.workload.name
        served = self.now if state is TurnState.PARKED else there[name].served_at
        there[name] = replace(there[name], state=state, served_at=served)

    def _outcome(self, refused: Mapping[str, str]) -> SimulationOutcome:
        ends = [one.finished_at for one in self._ended]
        length = max(ends, default=0.0)
        return SimulationOutcome(
            policy=self.policy,
            makespan=length,
            mean_finish=sum(ends) / len(ends) if ends else 0.0,
            switches=int(self._spent["switches"]),
            switching_seconds=self._spent["parking"] + self._spent["restoring"],
            busy_share=self._spent["computing"] / (length * len(self._leases)) if length else 0.0,
            workloads=tuple(sorted(self._ended, key=lambda one: one.name)),
            refused=refused,
        )


def simulate(scenario: Scenario) -> list[SimulationOutcome]:
    """Plays a scenario under each policy."""
    return [Simulation(scenario, policy).run() for policy in POLICIES]
