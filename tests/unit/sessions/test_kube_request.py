"""Requests are read as the API server reads them.

`request_info.tsv` is what its own code (k8s.io/apiserver 0.36.3) says of each; it was
made by `request_info.go`.
"""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.sessions.access.kube_request import KubeRequest, classify
from windlass.tunnel.http1_bodies import MalformedHttp

TABLE = [
    line.split("\t")
    for line in Path(__file__).with_name("request_info.tsv").read_text().splitlines()
]


@pytest.mark.parametrize("row", TABLE, ids=[row[0] for row in TABLE])
def test_it_reads_as_the_api_server_does(row: list[str]) -> None:
    method, target = row[0].split(" ")
    if row[1] == "error":
        with pytest.raises(MalformedHttp):
            classify(method, target)
        return
    kind, verb, group, version, namespace, resource, subresource, name = (row[1:] + [""] * 8)[:8]
    found = classify(method, target)
    assert found.is_resource == (kind == "resource")
    assert found.verb == verb
    assert (found.api_group, found.api_version, found.namespace) == (group, version, namespace)
    assert (found.resource, found.subresource, found.name) == (resource, subresource, name)


@pytest.mark.parametrize(
    "target",
    [
        "/api/v1//namespaces/ns/pods",
        "//api/v1/namespaces/ns/pods",
        "/api/v1/namespaces/ns/../other/pods",
        "/api/v1/namespaces/./pods",
        "/api/v1/namespaces/ns/pods//",
        "/api/v1/namespaces/ns%2Fpods",
        "/api/v1/namespaces/ns/pods/p%2fexec",
        "/api/v1/namespaces/ns/pods/p/log;x",
        "/api/v1/namespaces/%6es/pods",
        "/api/v1/namespaces/ns\\other/pods",
        "/api/v1/namespaces/ns/pods?watch=1;x=2",
        "/api/v1/namespaces/ns/pods?watch=%zz",
        "/api/v1/namespaces/ns/pods?x=1#y",
    ],
)
def test_what_has_two_readings_is_refused(target: str) -> None:
    with pytest.raises(MalformedHttp):
        classify("GET", target)


SEGMENT = st.sampled_from(
    ["api", "apis", "v1", "batch", "watch", "proxy", "namespaces", "ns", "other", "pods", "p",
     "exec", "log", "status", "secrets", "..", ".", "", "%2e%2e"]
)  # fmt: skip


@given(st.lists(SEGMENT, max_size=9), st.sampled_from(["GET", "POST", "DELETE"]))
def test_any_path_is_read_or_refused(parts: list[str], method: str) -> None:
    try:
        found = classify(method, "/" + "/".join(parts))
    except MalformedHttp:
        return
    assert isinstance(found, KubeRequest)
    # A namespace of the request is one that its path names behind `namespaces`.
    if found.namespace:
        assert f"/namespaces/{found.namespace}" in found.path


def test_the_kind_is_written_as_kubectl_does() -> None:
    assert classify("GET", "/api/v1/namespaces/ns/pods/p/log").kind == "pods/log"
    assert classify("GET", "/apis/batch/v1/jobs").kind == "jobs.batch"
    assert classify("GET", "/openapi/v3").kind == "/openapi/v3"
