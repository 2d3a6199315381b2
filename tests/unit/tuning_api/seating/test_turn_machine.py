"""Turns as a machine: one active, granted only when the device is free, and nobody starved."""

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from windlass.tuning_api.seating.turns import (
    MAX_SHARES,
    SeatTurn,
    TurnPatience,
    TurnPolicy,
    TurnState,
    charged,
    joined,
    next_turn,
)

PROJECTS = ("a", "b", "c")
WEIGHTS = {"a": 1.0, "b": 2.0, "c": 4.0}
SEATS = 5
# Turns that all others may have while somebody waits, however they come and go: one each, or by
# weight four of one project for each of another, of either side of it, and one that is going on.
MOST = {TurnPolicy.FIFO: 4, TurnPolicy.LEAST_RECENT: 4, TurnPolicy.WEIGHTED: 2 * (4 + 4) + 1}


class TurnMachine(RuleBasedStateMachine):
    """Seats that come, ask, compute, park and go, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.policy = TurnPolicy.FIFO
        self.now = 1.0
        self.turns: dict[str, SeatTurn] = {}
        self.shares: dict[str, float] = {}
        # Turns of others since a seat asked.
        self.passed: dict[str, int] = {}
        self.number = 0

    @rule(policy=st.sampled_from(list(TurnPolicy)))
    @precondition(lambda self: not self.turns)
    def choose(self, policy: TurnPolicy) -> None:
        self.policy = policy

    @rule(project=st.sampled_from(PROJECTS))
    @precondition(lambda self: len(self.turns) < SEATS)
    def sit(self, project: str) -> None:
        self.number += 1
        name = f"s{self.number:04}"
        self.now += 1
        self.turns[name] = SeatTurn(name, TurnState.PARKED, project, served_at=self.now)

    @rule(data=st.data())
    @precondition(lambda self: self.idle())
    def ask(self, data: st.DataObject) -> None:
        self.now += 1
        turn = self.turns[data.draw(st.sampled_from(self.idle()))]
        present = {one.project_id for one in self.turns.values() if one.waits or one in self.busy()}
        self.shares = joined(self.shares, turn.project_id, present)
        self.turns[turn.seat_id] = replace(turn, asked_at=self.now)
        self.passed[turn.seat_id] = 0
        self.grant()

    @rule()
    @precondition(lambda self: self.busy())
    def advance(self) -> None:
        """What has the device goes on; at the end of its turn the next is granted."""
        self.now += 1
        [turn] = self.busy()
        order = [TurnState.RESTORING, TurnState.ACTIVE, TurnState.PARKING, TurnState.PARKED]
        state = order[order.index(turn.state) + 1]
        self.turns[turn.seat_id] = replace(turn, state=state)
        if state is TurnState.PARKED:
            self.turns[turn.seat_id] = replace(turn, state=state, served_at=self.now)
            weight = WEIGHTS[turn.project_id]
            self.shares = charged(self.shares, turn.project_id, 1.0, weight)
            self.grant()

    @rule(data=st.data())
    @precondition(lambda self: self.turns)
    def leave(self, data: st.DataObject) -> None:
        """A seat goes, whatever it was doing; what sat there has ended."""
        name = data.draw(st.sampled_from(sorted(self.turns)))
        del self.turns[name]
        self.passed.pop(name, None)
        self.grant()

    @invariant()
    def one_has_the_device(self) -> None:
        assert len(self.busy()) <= 1

    @invariant()
    def nobody_waits_for_a_free_device(self) -> None:
        assert self.busy() or not any(one.waits for one in self.turns.values())

    @invariant()
    def nobody_is_starved(self) -> None:
        assert all(count <= MOST[self.policy] for count in self.passed.values())

    def busy(self) -> list[SeatTurn]:
        return [one for one in self.turns.values() if one.state is not TurnState.PARKED]

    def idle(self) -> list[str]:
        return sorted(
            one.seat_id
            for one in self.turns.values()
            if one.state is TurnState.PARKED and not one.waits
        )

    def grant(self) -> None:
        chosen = next_turn(self.turns.values(), self.policy, self.shares)
        if chosen is None:
            return
        assert chosen.waits
        assert not self.busy()
        self.turns[chosen.seat_id] = replace(chosen, state=TurnState.RESTORING, asked_at=None)
        self.passed.pop(chosen.seat_id, None)
        for name in self.passed:
            self.passed[name] += 1


TestTurns = TurnMachine.TestCase
TestTurns.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)


def test_the_policies_choose_differently() -> None:
    first = SeatTurn("first", TurnState.PARKED, "a", asked_at=1.0, served_at=9.0)
    rested = SeatTurn("rested", TurnState.PARKED, "b", asked_at=2.0, served_at=3.0)
    light = SeatTurn("light", TurnState.PARKED, "c", asked_at=3.0, served_at=5.0)
    shares = {"a": 7.0, "b": 5.0, "c": 1.0}
    found = [next_turn([first, rested, light], one, shares) for one in TurnPolicy]
    assert found == [first, rested, light]
    active = SeatTurn("active", TurnState.ACTIVE)
    assert next_turn([first, active], TurnPolicy.FIFO, {}) is None
    assert next_turn([active], TurnPolicy.FIFO, {}) is None


def test_time_away_is_no_credit_and_shares_are_bounded() -> None:
    assert joined({"a": 10.0, "b": 2.0}, "b", {"a"}) == {"a": 10.0, "b": 10.0}
    assert joined({"a": 10.0}, "b", set()) == {"a": 10.0, "b": 0.0}
    shares: dict[str, float] = {}
    for place in range(MAX_SHARES + 5):
        shares = charged(shares, f"p{place}", 1.0 + place, 1.0)
    assert len(shares) == MAX_SHARES
    assert charged({}, "a", 3.0, 2.0) == {"a": 1.5}


def test_a_turn_ends_by_its_time_or_by_a_rest() -> None:
    patience = TurnPatience(turn_seconds=10, rest_seconds=1)
    assert patience.seconds_left(3, 0, None) == 7
    assert patience.seconds_left(3, 0, 2.5) == 0.5
    assert patience.seconds_left(9.9, 0, 9.8) == (10 - 9.9)
    assert patience.seconds_left(11, 0, None) == 0
