"""Authentication of runners by tokens that the cluster reviews and pods that exist."""

import base64
import json
import time
from typing import Any

import pytest

from windlass.api.jobs.v1 import jobs_pb2
from windlass.core.errors import Unavailable
from windlass.tunnel.authority import Authority, is_stale
from windlass_agent.executors.kubernetes.observe.snapshot import Key, PodSnapshot
from windlass_agent.executors.kubernetes.runners import PodTokens, read_claims
from windlass_agent.kube import KubeError
from windlass_agent.runner_service import Registered

POD = PodSnapshot(
    key=Key("ftjob-1", 2), job_id="ftjob-1", rank=0, namespace="team-a", name="ftjob-1-2-x",
    uid="uid-1", service_account="windlass-runner", node="n", phase="Running", reason="",
    message="", deleting=False, scheduled=None, disruption=None, runner=None, blocked=None,
)  # fmt: skip


def token(**changes: Any) -> str:
    bound = {"namespace": "team-a", "pod": {"name": "ftjob-1-2-x", "uid": "uid-1"},
             "serviceaccount": {"name": "windlass-runner"}}  # fmt: skip
    claims = {"aud": ["windlass"], "exp": time.time() + 600, "kubernetes.io": bound} | changes
    body = base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=").decode()
    return f"head.{body}.signature"


class Cluster:
    """Stands for the API server's TokenReview, of which this test wants wrong answers too."""

    def __init__(self) -> None:
        self.asked = 0
        self.error: KubeError | None = None
        self.status: dict[str, Any] = {
            "authenticated": True,
            "audiences": ["windlass"],
            "user": {
                "username": "system:serviceaccount:team-a:windlass-runner",
                "extra": {
                    "authentication.kubernetes.io/pod-name": ["ftjob-1-2-x"],
                    "authentication.kubernetes.io/pod-uid": ["uid-1"],
                },
            },
        }

    async def create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        self.asked += 1
        if self.error is not None:
            raise self.error
        return {"status": self.status}


def tokens(cluster: Any, pod: PodSnapshot | None = POD) -> PodTokens[Registered]:
    def registered(pod: PodSnapshot) -> Registered:
        run = jobs_pb2.Run(job_id=pod.job_id, attempt=pod.key.attempt)
        return Registered(run=run, superseded=lambda: None)

    return PodTokens(cluster, find_pod=lambda *_: pod, registered=registered)


async def test_the_attempt_is_what_the_mirror_says_and_the_cluster_is_asked_once() -> None:
    cluster = Cluster()
    known = tokens(cluster)
    for _ in range(3):
        found = await known.find(shown := token(exp=9e9))
        assert found is not None
        assert (found.run.job_id, found.run.attempt) == ("ftjob-1", 2)
    assert shown
    assert cluster.asked == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"aud": ["https://kubernetes.default.svc"]},
        {"exp": 1},
        {"kubernetes.io": {"namespace": "team-a"}},
        {"kubernetes.io": {"namespace": "team-a", "pod": {"name": "ftjob-1-2-x", "uid": "other"},
                           "serviceaccount": {"name": "windlass-runner"}}},
        {"kubernetes.io": {"namespace": "team-a", "pod": {"name": "ftjob-1-2-x", "uid": "uid-1"},
                           "serviceaccount": {"name": "default"}}},
    ],
)  # fmt: skip
async def test_what_is_no_token_of_ours_costs_the_cluster_nothing(changes: dict[str, Any]) -> None:
    cluster = Cluster()
    assert await tokens(cluster).find(token(**changes)) is None
    assert cluster.asked == 0


@pytest.mark.parametrize("text", ["", "a.b", "a.b.c", "a.e30.c", "a.bnVsbA.c", "x" * 99999])
def test_garbage_is_no_token(text: str) -> None:
    assert read_claims(text) is None


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("authenticated", False),
        ("audiences", ["other"]),
        ("user", {"username": "system:serviceaccount:team-a:windlass-runner"}),
        ("user", {}),
    ],
)
async def test_what_the_cluster_does_not_vouch_for_is_refused(field: str, value: Any) -> None:
    cluster = Cluster()
    cluster.status[field] = value
    assert await tokens(cluster).find(token()) is None


async def test_a_cluster_that_cannot_be_asked_is_no_refusal() -> None:
    cluster = Cluster()
    cluster.error = KubeError(503, "ServiceUnavailable", "later")
    with pytest.raises(Unavailable):
        await tokens(cluster).find(token())


async def test_a_pod_that_is_not_there_any_more_may_not_call() -> None:
    assert await tokens(Cluster(), pod=None).find(token()) is None


def test_a_fresh_certificate_is_not_stale() -> None:
    certificate, key = Authority.make().issue("windlass-agent.windlass-agent.svc")
    assert not is_stale(certificate)
    assert b"PRIVATE KEY" in key


async def test_the_cluster_judges_the_time_of_a_token_and_not_our_clock() -> None:
    an_hour_ago = time.time() - 3600
    assert await tokens(Cluster()).find(token(exp=an_hour_ago)) is not None
    cluster = Cluster()
    cluster.status = {"authenticated": False}
    assert await tokens(cluster).find(token(exp=an_hour_ago)) is None
