"""Objects that a proxy agent writes, and those that a worker's agent creates."""

import json
from typing import Any

import pytest

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass_agent.federation import rendering, writing
from windlass_agent.federation.applied import AppliedObject, trim
from windlass_agent.kube.errors import Unrenderable

NOW = "2026-11-21T12:00:00Z"
CONDITION = {"type": "Complete", "status": "True"}


def applied(kind: str = "Job", status: dict[str, Any] | None = None) -> AppliedObject:
    return AppliedObject(
        kind=kind, namespace="team-a", name="hello", uid="uid-1", deleting=False, held=True,
        spec=b"{}", status=status or {},
    )  # fmt: skip


def note(status: dict[str, Any] | None = None, **fields: Any) -> pb.ObjectNote:
    data = b"" if status is None else json.dumps(status).encode()
    return pb.ObjectNote(guest=pb.WorkloadStatus(object_status=data), **fields)


def written(before: dict[str, Any], said: pb.ObjectNote, kind: str = "Job") -> dict[str, Any]:
    body = writing.status(applied(kind, before), said, NOW)
    assert body is not None
    assert body["metadata"]["uid"] == "uid-1"
    return dict(body["status"])


def test_only_what_asks_for_us_is_ours() -> None:
    metadata = {"namespace": "team-a", "name": "hello", "uid": "uid-1"}
    for manager in (None, "kueue.x-k8s.io/multikueue", "windlass.dev/federation2"):
        assert trim("Job", {"metadata": metadata, "spec": {"managedBy": manager}}) is None
    ours = {"metadata": metadata, "spec": {"managedBy": "windlass.dev/federation"}}
    found = trim("Job", ours)
    assert found is not None
    assert not found.held
    large = {"managedBy": "windlass.dev/federation", "x": "y" * 100_000}
    cut = trim("Job", {"metadata": metadata, "spec": large})
    assert cut is not None
    assert cut.spec == b"{}"


def test_another_attempt_neither_begins_anew_nor_undoes_what_was_counted() -> None:
    before = {"startTime": "2026-11-21T10:00:00Z", "failed": 2, "succeeded": 1}
    said = {
        "startTime": "2026-11-21T11:00:00Z", "failed": 1, "active": 1,
        "uncountedTerminatedPods": {"failed": ["x"]},
    }  # fmt: skip
    assert written(before, note(said)) == {
        "startTime": "2026-11-21T10:00:00Z", "failed": 2, "succeeded": 1, "active": 1,
    }  # fmt: skip
    # A job set's status is taken as it is.
    assert written(before, note(said), "JobSet") == said


def test_a_refusal_is_a_failure_that_the_api_server_takes() -> None:
    refusal = note(failure="NotFederated", message="No.")
    status = written({}, refusal)
    assert status["startTime"] == NOW
    assert [one["type"] for one in status["conditions"]] == ["FailureTarget", "Failed"]
    assert {one["reason"] for one in status["conditions"]} == {"NotFederated"}
    # Written again it is the same, whenever that is.
    again = writing.status(applied(status=status), refusal, "later")
    assert again is not None
    assert again["status"] == status
    (condition,) = written({}, refusal, "JobSet")["conditions"]
    assert (condition["type"], condition["status"]) == ("Failed", "True")


def test_there_may_be_nothing_to_say() -> None:
    assert writing.status(applied(), note(), NOW) is None
    assert writing.log(applied(), note()) is None


def test_events_are_the_same_ones_when_repeated_and_old_ones_are_not_told_again() -> None:
    now = 10_000_000_000
    said = [
        pb.Observation(key="1/Placed", at_ms=now - 1000, message="Runs in cluster west"),
        pb.Observation(key="u/BackOff", at_ms=now - 2000, warning=True, message="x" * 5000),
        pb.Observation(key="u/Old", at_ms=now - 4_000_000, message="Long ago"),
    ]
    first, again = (list(writing.events(applied(), note(observations=said), now)) for _ in "ab")
    assert first == again
    assert [(one["reason"], one["type"]) for one in first] == [
        ("Placed", "Normal"), ("BackOff", "Warning"),
    ]  # fmt: skip
    assert all(len(one["message"]) <= 1024 for one in first)
    assert {one["involvedObject"]["uid"] for one in first} == {"uid-1"}


def test_holding_names_the_object_and_letting_go_says_nothing_of_it() -> None:
    held = writing.mark(applied(), hold=True, cluster="west")["metadata"]
    assert held["finalizers"] == ["windlass.dev/federation"]
    assert held["annotations"] == {"windlass.dev/cluster": "west"}
    assert writing.mark(applied(), hold=False)["metadata"].keys() == {"name", "namespace", "uid"}


def guest(**fields: Any) -> pb.Workload:
    template = {"spec": {"containers": [{"name": "main"}], "nodeSelector": {"a": "1"}}}
    spec = json.dumps({"template": template}).encode()
    values: dict[str, Any] = {
        "id": "fed-abc",
        "project_id": "proj_1",
        "cluster_id": "cluster-1",
        "generation": 3,
        "placement": pb.Placement(namespace="team-a", queue="q", node_selector={"a": "2"}),
        "guest": pb.GuestWorkload(kind="Job", name="hello", attempt=2, spec=spec),
    }
    return pb.Workload(**values | fields)


def test_a_guest_is_ours_waits_for_its_queue_and_goes_where_it_may() -> None:
    made = rendering.render(guest())
    assert made["metadata"]["name"] == "fed-abc-2"
    assert made["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "q"
    assert made["spec"]["suspend"] is True
    template = made["spec"]["template"]
    assert template["spec"]["nodeSelector"] == {"a": "2"}
    assert template["spec"]["automountServiceAccountToken"] is False
    labels = template["metadata"]["labels"]
    assert labels["windlass.dev/kind"] == "guest"
    assert labels["windlass.dev/workload"] == "fed-abc"
    # A pod with an attempt would be a job's.
    assert "windlass.dev/attempt" not in labels
    assert "suspend" not in rendering.render(guest(placement=pb.Placement(namespace="a")))["spec"]


@pytest.mark.parametrize(
    "fields",
    [
        {"placement": pb.Placement()},
        {"placement": pb.Placement(namespace="../x")},
        {"placement": pb.Placement(namespace="a", queue="A B")},
        {"guest": pb.GuestWorkload(kind="Pod", spec=b"{}")},
        {"project_id": "a b"},
    ],
)
def test_what_has_no_place_or_no_name_is_not_made(fields: dict[str, Any]) -> None:
    with pytest.raises(Unrenderable):
        rendering.render(guest(**fields))
