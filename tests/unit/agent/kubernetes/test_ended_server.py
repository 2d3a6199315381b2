"""Ends of the server beside an engine's program, as its pod tells them."""

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.agent.kubernetes.test_tracked_engine import LOADS, see, shown, told, workload

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.kubernetes import labels
from windlass_agent.executors.kubernetes.engines import observed


@pytest.mark.parametrize(
    ("ended", "reason", "words"),
    [
        ({"reason": "OOMKilled", "exitCode": 137}, "OutOfMemory", "than the 6 GiB that it may use"),
        ({"reason": "Error", "exitCode": 1}, "ProcessExited", "ended with code 3"),
    ],
)
def test_a_server_that_ran_out_of_memory_is_why_the_engine_ended(
    ended: dict[str, Any], reason: str, words: str
) -> None:
    """Of llama.cpp and SGLang, whose container `engine` only passes on."""
    limits = {"engine": "2Gi", "server": "6Gi"}
    engine, server = (
        {"name": name, "resources": {"limits": {"memory": most}}} for name, most in limits.items()
    )
    statuses = [
        {"name": name, "restartCount": 2, "state": {"running": {}},
         "lastState": {"terminated": end}}
        for name, end in (("engine", {"reason": "Error", "exitCode": 3}), ("server", ended))
    ]  # fmt: skip
    pod = observed.trim_pod(
        {
            "metadata": {"labels": {labels.WORKLOAD: "eng-1"}, "namespace": "team-a",
                         "name": "p-1", "uid": "u-1"},
            "spec": {"containers": [engine], "initContainers": [server], "nodeName": "n"},
            "status": {"phase": "Running", "containerStatuses": statuses[:1],
                       "initContainerStatuses": statuses[1:]},
        }
    )  # fmt: skip
    assert pod is not None
    made = told(workload())
    see(made, shown(workload(), replace(pod, restarts=0)), LOADS)
    see(made, shown(workload(), pod), LOADS)
    status = made.status()
    assert (status.phase, status.reason) == (pb.PHASE_FAILED, reason)
    assert words in status.message
