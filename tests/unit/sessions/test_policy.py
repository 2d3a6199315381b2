"""Requests that the policy allows, and all others."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.sessions.test_kube_request import SEGMENT, TABLE

from windlass.api.sessions.v1.sessions_pb2 import ACCESS_LEVEL_EDITOR, ACCESS_LEVEL_VIEWER
from windlass.sessions.access.kube_request import classify
from windlass.sessions.access.policy import AccessAllowed, AccessDenied, decide, verb_of
from windlass.tunnel.http1_bodies import MalformedHttp

READ = AccessAllowed("sessions.read", ACCESS_LEVEL_VIEWER)
WRITE = AccessAllowed("sessions.write", ACCESS_LEVEL_EDITOR)
OWN = "/api/v1/namespaces/mine"
VISIBILITY = "/apis/visibility.kueue.x-k8s.io/v1beta2/namespaces/mine"
KUEUE = "/apis/kueue.x-k8s.io/v1beta2/namespaces/mine"


def verdict(request: str, upgrade: str = "") -> AccessAllowed | AccessDenied:
    method, target = request.split(" ")
    return decide(classify(method, target), "mine", upgrade=upgrade)


@pytest.mark.parametrize(
    "request_",
    [
        f"GET {OWN}/pods",
        f"GET {OWN}/pods?watch=true",
        f"GET {OWN}/pods/p",
        f"HEAD {OWN}/pods/p",
        f"GET {OWN}/pods/p/status",
        f"GET {OWN}/pods/p/log?follow=true&container=c",
        f"GET {OWN}/events",
        "GET /api/v1/watch/namespaces/mine/pods",
        "GET /apis/events.k8s.io/v1/namespaces/mine/events?watch=1",
        f"GET {OWN}/pods/windlass-engine-eng-1-x",
        "GET /apis/apps/v1/namespaces/mine/deployments",
        "GET /apis/leaderworkerset.x-k8s.io/v1/namespaces/mine/leaderworkersets",
        "GET /apis/batch/v1/namespaces/mine/jobs",
        "GET /apis/batch/v1/namespaces/mine/jobs/j/status",
        "GET /apis/jobset.x-k8s.io/v1alpha2/namespaces/mine/jobsets/j",
        "GET /apis/trainer.kubeflow.org/v1alpha1/namespaces/mine/trainjobs",
        f"GET {KUEUE}/workloads",
        f"GET {KUEUE}/localqueues/q",
        f"GET {VISIBILITY}/localqueues/q/pendingworkloads",
        "GET /version",
        "GET /version/",
        "GET /api",
        "GET /api/v1",
        "GET /apis/batch/v1",
        "GET /openapi/v3/apis/batch/v1?hash=x",
        "HEAD /openapi/v2",
    ],
)
def test_reading_passes_as_the_viewer(request_: str) -> None:
    assert verdict(request_) == READ


@pytest.mark.parametrize("part", ["log", "exec", "attach", "portforward", "proxy"])
def test_pods_of_engines_are_not_entered_nor_their_logs_read(part: str) -> None:
    for method in ("GET", "POST"):
        found = verdict(f"{method} {OWN}/pods/windlass-engine-eng-1-x/{part}?container=engine")
        assert isinstance(found, AccessDenied)
        assert "engines also serve requests of others" in found.reason


@pytest.mark.parametrize(
    ("door", "method", "upgrade"),
    list(
        itertools.product(
            ["exec", "attach", "portforward"], ["GET", "POST"], ["websocket", "spdy/3.1", ""]
        )
    ),
)
def test_entering_a_pod_is_a_write(door: str, method: str, upgrade: str) -> None:
    request = f"{method} {OWN}/pods/p/{door}?command=sh"
    assert verdict(request, upgrade) == WRITE
    assert verb_of(classify(*request.split(" "))) == "create"


@pytest.mark.parametrize(
    "request_",
    [
        "GET /api/v1/namespaces/other/pods",
        "POST /api/v1/namespaces/other/pods/p/exec",
        "GET /api/v1/namespaces/mine-too/pods",
        "GET /api/v1/pods",
        "GET /api/v1/pods?fieldSelector=metadata.namespace%3Dmine",
        "GET /api/v1/watch/pods",
        "GET /apis/batch/v1/jobs",
        "GET /api/v1/namespaces",
        "GET /api/v1/namespaces/mine",
        "DELETE /api/v1/namespaces/mine",
        "PUT /api/v1/namespaces/mine/finalize",
        "GET /api/v1/nodes",
        "GET /api/v1/nodes/n/proxy/logs",
        "POST /api/v1/nodes/n/proxy/run/mine/p/c",
        "GET /api/v1/proxy/nodes/n",
        f"GET {OWN}/services/s/proxy/x",
        f"GET {OWN}/services",
        f"GET {OWN}/pods/p/proxy/x",
        f"GET {OWN}/secrets",
        f"GET {OWN}/secrets/s",
        f"GET {OWN}/configmaps",
        f"POST {OWN}/serviceaccounts/windlass-editor/token",
        f"POST {OWN}/pods",
        f"DELETE {OWN}/pods/p",
        f"DELETE {OWN}/pods",
        f"PATCH {OWN}/pods/p",
        f"PUT {OWN}/pods/p/status",
        f"POST {OWN}/pods/p/eviction",
        f"PATCH {OWN}/pods/p/ephemeralcontainers",
        f"PATCH {OWN}/pods/p/resize",
        f"PUT {OWN}/pods/p/exec",
        f"DELETE {OWN}/pods/p/attach",
        f"GET {OWN}/pods/p/log/more",
        f"POST {OWN}/pods/p/exec/more",
        "GET /api/v1/watch/namespaces/mine/pods/p/exec",
        "GET /api/v1/proxy/namespaces/mine/pods/p/exec",
        "POST /apis/batch/v1/namespaces/mine/jobs",
        "PATCH /apis/batch/v1/namespaces/mine/jobs/j",
        f"PATCH {KUEUE}/workloads/w",
        f"DELETE {KUEUE}/localqueues/q",
        "GET /apis/kueue.x-k8s.io/v1beta2/clusterqueues",
        "GET /apis/visibility.kueue.x-k8s.io/v1beta2/clusterqueues/q/pendingworkloads",
        "POST /apis/authentication.k8s.io/v1/tokenreviews",
        "POST /apis/authorization.k8s.io/v1/subjectaccessreviews",
        "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        "POST /apis/authorization.k8s.io/v1/namespaces/mine/localsubjectaccessreviews",
        "GET /apis/rbac.authorization.k8s.io/v1/namespaces/mine/roles",
        "POST /apis/rbac.authorization.k8s.io/v1/namespaces/mine/rolebindings",
        "GET /apis/metrics.k8s.io/v1beta1/namespaces/mine/pods",
        "GET /metrics",
        "GET /logs/x",
        "GET /debug/pprof",
        "GET /healthz",
        "GET /",
        "POST /version",
        "POST /api/v1",
        "GET /versions",
        "GET /apisx/batch/v1",
    ],
)
def test_the_rest_is_refused(request_: str) -> None:
    assert isinstance(verdict(request_), AccessDenied)


@pytest.mark.parametrize(
    ("request_", "upgrade"),
    [
        (f"GET {OWN}/pods?watch=true", "websocket"),
        (f"GET {OWN}/pods/p/log?follow=true", "websocket"),
        ("GET /version", "websocket"),
        ("GET /api", "h2c"),
        (f"POST {OWN}/pods/p/exec", "h2c"),
        (f"POST {OWN}/pods/p/exec", "websocket, h2c"),
    ],
)
def test_only_the_doors_of_pods_change_the_protocol(request_: str, upgrade: str) -> None:
    assert isinstance(verdict(request_, upgrade), AccessDenied)


def test_no_namespace_but_ones_own_is_ever_reached() -> None:
    """Returns whatever the API server itself would say of the request."""
    for row in TABLE:
        method, target = row[0].split(" ")
        try:
            found = decide(classify(method, target), "mine")
        except MalformedHttp:
            continue
        if isinstance(found, AccessAllowed):
            assert row[1] == "path", row
            assert target.startswith(("/api", "/apis", "/version", "/openapi")), row
            assert method in ("GET", "HEAD"), row


@given(st.lists(SEGMENT, max_size=9), st.sampled_from(["GET", "POST", "PUT", "PATCH", "DELETE"]))
def test_any_resource_that_passes_is_in_ones_namespace(parts: list[str], method: str) -> None:
    try:
        request = classify(method, "/" + "/".join(parts))
    except MalformedHttp:
        return
    if isinstance(decide(request, "ns"), AccessAllowed) and request.is_resource:
        assert request.resource != "secrets"
        assert (request.namespace, request.api_group) in {("ns", ""), ("ns", "batch")}
