"""Ends of an engine in a pod that only its log explains."""

from dataclasses import replace

import pytest
from tests.unit.agent.kubernetes.test_tracked_engine import (
    LOADS,
    POD,
    SERVES,
    see,
    shown,
    told,
    workload,
)

from windlass_agent.executors.kubernetes.observe.snapshot import Container, PodSnapshot

END = Container(state="terminated", reason="Error", exit_code=1)
ENDED = replace(POD, restarts=1, last_end=END)


@pytest.mark.parametrize(
    ("pod", "asks"),
    [
        (ENDED, True),
        (replace(POD, runner=END), True),
        (POD, False),
        (replace(ENDED, last_end=replace(END, exit_code=0)), False),
        (replace(ENDED, last_end=replace(END, reason="OOMKilled")), False),
        (replace(ENDED, last_end=replace(END, reason="StartError")), False),
    ],
)
def test_each_end_that_its_pod_does_not_explain_is_read_once(pod: PodSnapshot, asks: bool) -> None:
    made = told(workload())
    see(made, shown(workload(), pod), LOADS)
    assert made.unread_ends() == ([pod] if asks else [])
    see(made, shown(workload(), pod), LOADS)
    assert made.unread_ends() == []
    if pod is ENDED:
        again = replace(pod, restarts=2)
        see(made, shown(workload(), again), LOADS)
        assert made.unread_ends() == [again]


def test_what_lacked_is_forgotten_once_it_serves_or_is_another() -> None:
    made = told(workload())
    made.lack = "It had too little."
    see(made, shown(workload(), ENDED), SERVES)
    assert not made.lack
    assert not made.unread_ends(), "an end of one that serves is of no start"
    made.lack = "It had too little."
    made.want(workload(generation=2))
    assert made.lack
    made.want(workload(generation=3, gpus=2))
    assert not made.lack
