"""The simulator: its figures are those of a few seconds by hand, and its devices are never over."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.tuning_api.seating.admission import device_bytes_needed
from windlass.tuning_api.seating.scenario import BadScenario, read_scenario
from windlass.tuning_api.seating.simulation import POLICIES, Simulation, simulate
from windlass.tuning_api.seating.turns import TurnState

DEVICE = {"name": "gpu-0", "device_bytes": 80, "host_bytes": 100}
RUN = {"device_bytes": 60, "host_bytes": 40, "operations": 10, "operation_seconds": 1.0}


def scenario(*workloads: dict[str, Any], **turns: Any) -> Any:
    return read_scenario({"devices": [DEVICE], "workloads": list(workloads), "turns": turns})


def test_one_alone_costs_no_switch() -> None:
    [alone, *others] = simulate(scenario({**RUN, "name": "a", "load_seconds": 5}))
    assert (alone.makespan, alone.switches, alone.busy_share) == (15, 0, 10 / 15)
    assert all((one.makespan, one.switches) == (15, 0) for one in others)


def test_two_by_turns_pay_for_each_switch() -> None:
    parts = {"park_seconds": 0.5, "restore_seconds": 0.25}
    two = [{**RUN, **parts, "name": name} for name in "ab"]
    exclusive, fifo, *_ = simulate(scenario(*two, turn_seconds=5, rest_seconds=1))
    assert (exclusive.makespan, exclusive.switches) == (20, 0)
    # a and b leave the device once each, and come back once each; then each of them ends on it.
    assert (fifo.switches, fifo.switching_seconds) == (2, 2 * 0.5 + 2 * 0.25)
    assert fifo.makespan == 20 + fifo.switching_seconds
    assert [one.longest_wait_seconds for one in fifo.workloads] == [5.5, 5.5]


def test_rests_of_one_are_work_of_the_other() -> None:
    two = [{**RUN, "name": name, "rest_seconds": 1} for name in "ab"]
    exclusive, fifo, *_ = simulate(scenario(*two, turn_seconds=10, rest_seconds=0))
    assert exclusive.makespan == 38
    assert fifo.makespan < 22


def test_what_never_fits_is_told_and_the_others_go_on() -> None:
    huge = {**RUN, "name": "huge", "device_bytes": 81}
    for one in simulate(scenario({**RUN, "name": "a"}, huge)):
        assert one.makespan == 10
        assert "gpu-0 has 80 bytes, and 81 bytes would be needed" in one.refused["huge"]


def test_weights_are_shares_of_the_device() -> None:
    two = [{**RUN, "name": name, "project": name, "operations": 200} for name in "ab"]
    found = scenario(*two, turn_seconds=1, rest_seconds=5, weights={"a": 3})
    weighted = {one.policy: one for one in simulate(found)}["weighted"]
    a, b = weighted.workloads
    # While both were there, a computed three seconds of four.
    assert a.finished_at == pytest.approx(200 * 4 / 3, rel=0.05)
    assert b.finished_at == 400


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"device_bytes": -1}, r"\$\.workloads\[0\]\.device_bytes"),
        ({"operations": 0}, r"\$\.workloads\[0\]\.operations"),
        ({"colour": "red"}, "colour"),
        ({"name": "../x"}, r"\$\.workloads\[0\]\.name"),
        ({"operation_seconds": float("nan")}, "operation_seconds"),
    ],
)
def test_a_bad_scenario_names_the_field(change: dict[str, Any], said: str) -> None:
    with pytest.raises(BadScenario, match=said):
        scenario({**RUN, "name": "a", **change})


def test_names_differ() -> None:
    with pytest.raises(BadScenario, match=r"\$\.workloads"):
        scenario({**RUN, "name": "a"}, {**RUN, "name": "a"})


workloads = st.lists(
    st.fixed_dictionaries(
        {
            "device_bytes": st.integers(1, 80),
            "host_bytes": st.integers(0, 60),
            "operations": st.integers(1, 6),
            "operation_seconds": st.sampled_from((0.5, 1.0, 3.0)),
            "rest_seconds": st.sampled_from((0.0, 0.5, 2.0)),
            "arrives": st.sampled_from((0.0, 1.0, 4.0)),
            "load_seconds": st.sampled_from((0.0, 2.0)),
            "park_seconds": st.sampled_from((0.0, 0.5)),
            "restore_seconds": st.sampled_from((0.0, 0.5)),
            "residue_bytes": st.sampled_from((0, 5)),
            "project": st.sampled_from(("p", "q")),
        }
    ),
    min_size=1,
    max_size=6,
)


@given(workloads, st.sampled_from(POLICIES), st.sampled_from((0.0, 1.0, 5.0)))
@settings(max_examples=150, deadline=None)
def test_one_is_active_nothing_is_over_and_everybody_ends(
    runs: list[dict[str, Any]], policy: str, seconds: float
) -> None:
    named = [{"name": f"w{place}", **one} for place, one in enumerate(runs)]
    devices = [DEVICE, {**DEVICE, "name": "gpu-1", "device_bytes": 40}]
    turns = {"turn_seconds": seconds, "rest_seconds": 0.2}
    found = read_scenario({"devices": devices, "workloads": named, "turns": turns})

    def watched(simulation: Simulation) -> None:
        assert sum(one.demand.host_bytes for one in simulation.residents.values()) <= 100
        for device in found.devices:
            there = simulation.turns[device.name].values()
            assert sum(one.state is not TurnState.PARKED for one in there) <= 1
            own = [
                one.demand for one in simulation.residents.values() if one.lease_id == device.name
            ]
            assert device_bytes_needed(own, takes_turns=True) <= device.device_bytes

    outcome = Simulation(found, policy, watched).run()
    assert len(outcome.workloads) + len(outcome.refused) == len(named)
    assert not outcome.refused or all(
        one["device_bytes"] > 80 for one in named if one["name"] in outcome.refused
    )
    total = sum(one["operations"] * one["operation_seconds"] for one in named)
    assert outcome.busy_share * outcome.makespan * 2 == pytest.approx(total)
