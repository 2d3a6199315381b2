"""Fifty followed logs and twenty commands at once, at a real kubelet through the tunnel.

By the Python client, since seventy kubectl would be the load rather than the tunnel.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest
from tests.cluster.fixtures import Clusters
from tests.cluster.stages.access_site import AccessSite, Team, access_site

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
LOGS, EXECS, PODS = 50, 20, 5
LINES = 500
SECONDS = 120
# Each waits until every stream is open, so that all of them carry their lines at once.
POD = f"""
echo begun
until [ -e /tmp/go ]; do sleep 0.1; done
i=0; while [ $i -lt {LINES} ]; do
  echo $HOSTNAME line $i
  i=$((i+1)); [ $((i % 25)) -gt 0 ] || sleep 0.1
done
until [ -e /tmp/end ]; do sleep 0.1; done
"""
COMMAND = f"""
echo ready; read word; touch /tmp/go
i=0; while [ $i -lt {LINES} ]; do
  echo $word out $i; echo $word err $i >&2
  i=$((i+1)); [ $((i % 25)) -gt 0 ] || sleep 0.1
done
"""


@pytest.fixture
def site(clusters: Clusters) -> Iterator[AccessSite]:
    with clusters.open("east") as cluster, access_site(cluster) as made:
        yield made


def test_every_line_and_every_exit_code_is_right(
    site: AccessSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    team = site.team("acme")
    names = [site.pod(team, f"talker-{number}", POD) for number in range(PODS)]
    connect, opened = clients(site, team, monkeypatch), Barrier(LOGS + EXECS)
    with ThreadPoolExecutor(LOGS + EXECS) as pool:
        logs = [
            pool.submit(follow, connect(), names[number % PODS], team.namespace, opened)
            for number in range(LOGS)
        ]
        commands = [
            pool.submit(run, connect(), names[number % PODS], team.namespace, opened, number)
            for number in range(EXECS)
        ]
        for number, command in enumerate(commands):
            out = "".join(f"word-{number} out {line}\n" for line in range(LINES))
            err = "".join(f"word-{number} err {line}\n" for line in range(LINES))
            assert command.result() == (f"ready\n{out}", err, number)
        for name in names:
            assert site.kubectl(team, "exec", name, "--", "touch", "/tmp/end").returncode == 0
        for number, log in enumerate(logs):
            told = "".join(f"{names[number % PODS]} line {line}\n" for line in range(LINES))
            assert log.result() == f"begun\n{told}"


def clients(site: AccessSite, team: Team, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Any]:
    """Makes clients of one kubeconfig, each with connections of its own."""
    kubernetes = pytest.importorskip("kubernetes")
    for name, value in site.environment(team).items():
        monkeypatch.setenv(name, value)
    made = kubernetes.config.new_client_from_config(str(team.kubeconfig))
    return lambda: kubernetes.client.CoreV1Api(kubernetes.client.ApiClient(made.configuration))


def follow(core: Any, pod: str, namespace: str, opened: Barrier) -> str:
    """A log to its end; its first words are there before anything else is said."""
    answer = core.read_namespaced_pod_log(
        pod, namespace, follow=True, _preload_content=False, _request_timeout=SECONDS
    )
    parts = answer.stream()
    text = next(parts)
    opened.wait(SECONDS)
    return b"".join([text, *parts]).decode()


def run(core: Any, pod: str, namespace: str, opened: Barrier, number: int) -> tuple[str, str, int]:
    """The output of a command on both its streams, and its exit code."""
    from kubernetes.stream import stream

    client = stream(
        core.connect_get_namespaced_pod_exec, pod, namespace, container="main",
        command=["sh", "-c", f"{COMMAND}exit {number}"],
        stdin=True, stdout=True, stderr=True, tty=False, _preload_content=False,
    )  # fmt: skip
    while "ready\n" not in client.peek_stdout(timeout=SECONDS):
        assert client.is_open()
    opened.wait(SECONDS)
    client.write_stdin(f"word-{number}\n")
    client.run_forever(SECONDS)
    return client.read_stdout(), client.read_stderr(), client.returncode
