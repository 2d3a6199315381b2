"""Transitions of a federated object for any reports in any order."""

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.federation import domain, messages
from windlass.federation.domain import Federated, ObjectState

MAX_ATTEMPTS = 3
PHASES = [pb.PHASE_PENDING, pb.PHASE_RUNNING, pb.PHASE_SUCCEEDED, pb.PHASE_FAILED, pb.PHASE_STOPPED]
NEW = Federated(
    id="fed-1", cluster_id="east", uid="uid-1", namespace="team-a", name="hello", kind="Job",
    spec=b"{}", created_at_ms=1,
)  # fmt: skip
NAMES = ("told", "deleted", "placed", "refused", "waits", "heard", "lost", "noted")
STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["told", "deleted", "placed", "refused", "waits", "heard", "lost", "noted"]
        ),
        st.sampled_from(PHASES),
        # Of the status: its generation back from the newest, and whether the object is there.
        st.integers(0, 2),
        st.booleans(),
    ),
    max_size=30,
)


def heard(row: Federated, phase: Any, back: int, there: bool) -> pb.WorkloadStatus:
    return pb.WorkloadStatus(
        workload_id=row.id, cluster_id=row.worker, generation=row.generation - back, phase=phase,
        object_status=b'{"active":1}' if there else b"",
    )  # fmt: skip


def step(row: Federated, name: str, phase: Any, back: int, there: bool) -> Federated:
    if name in ("told", "deleted"):
        return domain.told(row, spec=b'{"a":1}', deleting=name == "deleted")
    if name == "heard":
        return domain.observed(
            row, heard(row, phase, back, there), max_attempts=MAX_ATTEMPTS, now=2
        )
    if name == "lost":
        return domain.lost(row, "Silent.", max_attempts=MAX_ATTEMPTS, now=2)
    if name == "noted":
        return domain.noted(row, pb.WorkloadStatus(phase=phase, cluster_id="east"))
    if row.state is not ObjectState.WAITING:
        # Placement decides on what waits alone.
        return row
    if name == "placed":
        return domain.placed(row, pb.Assignment(cluster_id="west", project_id="p"), "west", "", 2)
    return domain.refused(row, "No", "No.", 2) if name == "refused" else domain.waits(row, "No.", 2)


@given(STEPS)
def test_nothing_runs_twice_and_nothing_is_let_go_of_while_it_runs(steps: list[Any]) -> None:
    row = NEW
    for name, phase, back, there in steps:
        before, row = row, step(row, name, phase, back, there)
        assert row.generation >= before.generation
        assert row.revision >= before.revision
        assert row.attempt <= MAX_ATTEMPTS
        told = (row.state, row.guest, row.failure, row.deleting)
        if told != (before.state, before.guest, before.failure, before.deleting):
            assert row.revision > before.revision, "its clusters are to hear of it"
        wanted = row.desired
        if row.worker and wanted != before.desired and before.worker:
            assert row.generation > before.generation, "its worker is to hear of it"
        assert (wanted == pb.DESIRED_STATE_RUNNING) == (row.state is ObjectState.PLACED)
        if row.state is ObjectState.RELEASED and before.state is not ObjectState.RELEASED:
            assert row.deleting
            let_go = before.state is ObjectState.WAITING or not before.worker
            assert let_go or (before.state is ObjectState.STOPPING and name in ("heard", "lost"))
        if row.state is ObjectState.GONE and before.state is not ObjectState.GONE:
            assert before.state is ObjectState.RELEASED
        if before.state is ObjectState.GONE:
            assert row == before


def test_a_word_of_another_generation_means_nothing() -> None:
    row = step(NEW, "placed", 0, 0, False)
    for back in (-1, 1):
        assert step(row, "heard", pb.PHASE_SUCCEEDED, back, True) == row
    ended = step(row, "heard", pb.PHASE_SUCCEEDED, 0, True)
    assert (ended.state, ended.desired) == (ObjectState.ENDED, pb.DESIRED_STATE_STOPPED)


def test_a_spec_counts_until_it_is_placed() -> None:
    row = domain.told(NEW, spec=b'{"b":2}', deleting=False)
    assert row.spec == b'{"b":2}'
    placed = step(row, "placed", 0, 0, False)
    assert domain.told(placed, spec=b'{"c":3}', deleting=False) == placed


def test_what_a_cluster_says_is_held_to_a_length() -> None:
    seen = [pb.Observation(key=f"k/{n}", message="m" * 5000) for n in range(100)]
    said = pb.WorkloadStatus(
        object_status=b"x" * 10**6, log_tail="y" * 10**6, message="z" * 10**6, observations=seen
    )
    bounded = messages.bounded(said)
    assert bounded.ByteSize() < 64 * 1024
    assert bounded.log_tail
    assert bounded.observations[-1].key == "k/99"
    row = replace(NEW, guest=bounded.SerializeToString(), message_at_ms=1, message="It waits.")
    assert messages.note(row).note.observations[-1].key == "k/99"
