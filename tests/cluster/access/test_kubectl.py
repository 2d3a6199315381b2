"""kubectl, the Python client and `windlass jobs` at a real cluster, through the tunnel alone.

The agent is a real one with the rights of its chart; the kubeconfig is what the command prints,
but that its plugin is a fork.
"""

import contextlib
import fcntl
import json
import os
import pty
import select
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from tests.cluster.fixtures import Clusters
from tests.cluster.stages.access_site import (
    OLD,
    SPDY,
    WEBSOCKET,
    AccessSite,
    Dialect,
    Team,
    access_site,
    fetched,
)
from tests.support.environments import made_once
from tests.support.processes.shell import PROGRAM
from tests.support.processes.windlass import free_port
from tests.support.waiting import wait_until

from windlass.client import Windlass as Client
from windlass.demo.questions import split

# The old kubectl speaks SPDY too.
DIALECTS = pytest.mark.parametrize(
    "dialect",
    [WEBSOCKET, pytest.param(SPDY, marks=pytest.mark.long), OLD],
    ids=lambda dialect: dialect.name,
)


@pytest.fixture(scope="module")
def site(clusters: Clusters) -> Iterator[AccessSite]:
    with clusters.open("east") as cluster, access_site(cluster) as made:
        made.team("acme")
        made.team("bolt")
        made.pod(made.teams["acme"], "talker")
        yield made


@pytest.fixture
def acme(site: AccessSite) -> Team:
    return site.teams["acme"]


# What is below proves of the old one that it discovers.
@pytest.mark.parametrize(
    "dialect",
    [WEBSOCKET, pytest.param(OLD, marks=pytest.mark.long)],
    ids=lambda dialect: dialect.name,
)
def test_get_and_describe_and_discovery(site: AccessSite, acme: Team, dialect: Dialect) -> None:
    kubectl = partial(site.kubectl, acme, dialect=dialect)
    assert "talker" in kubectl("get", "pods").stdout
    assert "Scheduled" in kubectl("get", "events").stdout
    assert "Image:" in kubectl("describe", "pod", "talker").stdout
    assert "pods" in kubectl("api-resources").stdout
    assert "Server Version: v1." in kubectl("version").stdout
    for kind in ("jobs", "workloads.kueue.x-k8s.io", "localqueues.kueue.x-k8s.io"):
        assert kubectl("get", kind).returncode == 0, kind


@DIALECTS
def test_logs_are_followed(site: AccessSite, acme: Team, dialect: Dialect) -> None:
    with following(site, acme, "logs", "-f", "talker", dialect=dialect) as lines:
        numbers = [int(next(lines).split()[1]) for _ in range(4)]
    assert numbers == list(range(numbers[0], numbers[0] + 4))


def test_watch(site: AccessSite, acme: Team) -> None:
    with following(site, acme, "get", "pods", "-w", "--no-headers") as lines:
        assert "talker" in next(lines)
        site.pod(acme, "newcomer")
        assert any("newcomer" in line for line in lines)


@DIALECTS
def test_exec(site: AccessSite, acme: Team, dialect: Dialect) -> None:
    script = "echo out; echo err >&2; exit 3"
    done = site.kubectl(acme, "exec", "talker", "--", "sh", "-c", script, dialect=dialect)
    assert done.returncode == 3
    assert done.stdout == "out\n"
    assert done.stderr.startswith("err\n")
    cat = site.kubectl(acme, "exec", "-i", "talker", "--", "cat", given="typed", dialect=dialect)
    assert cat.stdout == "typed"


@DIALECTS
def test_exec_on_a_terminal(site: AccessSite, acme: Team, dialect: Dialect) -> None:
    words = site.words(acme, "exec", "-it", "talker", "--", "sh", dialect=dialect)
    shown = on_terminal(words, site.environment(acme) | dict(dialect.environment), "tty; exit 5\n")
    assert "/dev/pts/" in shown.text
    assert shown.code == 5


@DIALECTS
def test_attach(site: AccessSite, acme: Team, dialect: Dialect) -> None:
    with following(site, acme, "attach", "-i", "talker", dialect=dialect) as lines:
        assert any(line.startswith("line") for line in lines)
        lines.say("hello\n")
        assert any(line == "heard hello\n" for line in lines)


@DIALECTS
def test_cp(site: AccessSite, acme: Team, tmp_path: Path, dialect: Dialect) -> None:
    there, back = tmp_path / "there", tmp_path / "back"
    there.write_bytes(os.urandom(3_000_000))
    for source, target in ((there, "talker:/tmp/it"), ("talker:/tmp/it", back)):
        done = site.kubectl(acme, "cp", str(source), str(target), dialect=dialect)
        assert done.returncode == 0, done.stderr
    assert back.read_bytes() == there.read_bytes()


@DIALECTS
def test_port_forward(site: AccessSite, acme: Team, dialect: Dialect) -> None:
    port = free_port()
    words = ("port-forward", "pod/talker", f"{port}:8080")
    with following(site, acme, *words, dialect=dialect) as lines:
        assert "Forwarding from" in next(lines)
        wait_until(lambda: fetched(port), "it answers")
        assert fetched(port) == "hi\n"


def test_the_python_client(site: AccessSite, acme: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    kubernetes = pytest.importorskip("kubernetes")
    for name, value in site.environment(acme).items():
        monkeypatch.setenv(name, value)
    client = kubernetes.config.new_client_from_config(str(acme.kubeconfig))
    core = kubernetes.client.CoreV1Api(client)
    listed = core.list_namespaced_pod(acme.namespace)
    assert "talker" in [pod.metadata.name for pod in listed.items]
    assert "line 0" in core.read_namespaced_pod_log("talker", acme.namespace)
    watched = kubernetes.watch.Watch()
    seen = watched.stream(core.list_namespaced_pod, acme.namespace, timeout_seconds=5)
    assert next(iter(seen))["type"] == "ADDED"
    watched.stop()
    log = kubernetes.watch.Watch().stream(
        core.read_namespaced_pod_log, "talker", acme.namespace, follow=True
    )
    assert next(iter(log)).startswith("line")
    stream = kubernetes.stream.stream
    said = stream(
        core.connect_get_namespaced_pod_exec, "talker", acme.namespace,
        command=["echo", "hello"], stdout=True, stderr=True, stdin=False, tty=False,
    )  # fmt: skip
    assert said == "hello\n"
    forward = kubernetes.stream.portforward(
        core.connect_get_namespaced_pod_portforward, "talker", acme.namespace, ports="8080"
    )
    http = forward.socket(8080)
    http.setblocking(True)
    http.sendall(b"GET / HTTP/1.0\r\n\r\n")
    assert b"hi\n" in b"".join(iter(lambda: http.recv(4096), b""))
    with pytest.raises(kubernetes.client.ApiException) as refused:
        core.list_namespaced_secret(acme.namespace)
    assert refused.value.status == 403


def test_what_a_tenant_may_not(site: AccessSite, acme: Team) -> None:
    bolt = site.teams["bolt"]
    site.pod(bolt, "theirs")
    for line in (
        # Recorded each by itself, as the first of a minute are.
        "get secrets",
        f"get --raw /api/v1/nodes/{site.cluster.node}/proxy/pods",
        f"get pods -n {bolt.namespace}",
        f"logs theirs -n {bolt.namespace}",
        f"exec theirs -n {bolt.namespace} -- id",
        "get pods -A",
        "get nodes",
        "get namespaces",
        "get configmaps",
        "get --raw /apis/batch/v1/jobs",
        f"get --raw /api/v1/namespaces/{acme.namespace}/services/x/proxy/",
        f"get --raw /api/v1/namespaces/{acme.namespace}/pods/talker/proxy/",
        "get --raw /metrics",
        "delete pod talker",
        "create token windlass-editor",
        "auth can-i --list",
        "create rolebinding me --clusterrole=admin --user=me",
        "label pod talker windlass.dev/job=other",
        "get pods --as=system:admin",
        "get pods --as=me --as-group=system:masters",
        "annotate pod talker x=y",
    ):
        done = site.kubectl(acme, *line.split(" "))
        assert done.returncode != 0, line
        assert "orbidden" in done.stderr, (line, done.stderr)
    refused = [row for row in rows(site) if row["outcome"] == "PERMISSION_DENIED"]
    assert {"kubernetes/list secrets", "kubernetes/get nodes/proxy"} <= {
        row["action"] for row in refused
    }
    assert {row["key_id"] for row in refused} == {acme.key_id}


def rows(site: AccessSite) -> list[dict[str, str]]:
    """The audit rows of clusters, newest first."""
    found: list[dict[str, str]] = site.rest("GET", "/audit_events?limit=100")["data"]
    return [row for row in found if row["action"].startswith("kubernetes/")]


def test_to_enter_a_pod_is_audited_as_a_write(site: AccessSite, acme: Team) -> None:
    site.kubectl(acme, "exec", "talker", "--", "true")
    place = f"clusters/{site.cluster_id}/namespaces/{acme.namespace}/pods/talker/exec"
    expected = ("kubernetes/create pods/exec", place, "OK", acme.key_id)
    names = ("action", "resource", "outcome", "key_id")

    def there() -> bool:
        return any(tuple(row[name] for name in names) == expected for row in rows(site)[:3])

    wait_until(there, "it is audited")


def test_streams_end_with_the_key(site: AccessSite) -> None:
    team = site.team("leaver")
    site.pod(team, "talker")
    shell = site.start(team, "exec", "-i", "talker", "--", "cat")
    with following(site, team, "logs", "-f", "talker") as lines:
        next(lines)
        assert shell.stdin is not None
        assert shell.stdout is not None
        shell.stdin.write("hello\n")
        shell.stdin.flush()
        assert shell.stdout.readline() == "hello\n"
        site.rest("DELETE", f"/api_keys/{team.key_id}")
        began = time.monotonic()
        for _ in lines:
            pass
        shell.wait(10)
        # A second, and what a busy machine adds.
        assert time.monotonic() - began < 4
    assert shell.returncode != 0
    assert "revoked" in site.kubectl(team, "get", "pods").stderr


@pytest.mark.torch
def test_commands_in_the_pod_of_a_job(site: AccessSite, acme: Team, tmp_path: Path) -> None:
    """The job is only placed here, its own pod cannot start; another wears its labels."""
    job = start_job(site, acme, tmp_path)
    labels = {"windlass.dev/job": job, "windlass.dev/attempt": "1"}
    site.pod(acme, "worker", **labels)
    script = "echo out; echo err >&2; exit 9"
    done = site.command(acme, "jobs", "exec", job, "--", "sh", "-c", script, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (9, "out\n", "err\n")
    cat = site.command(acme, "jobs", "exec", "-i", job, "--", "cat", given="typed" * 50_000)
    assert cat.stdout == "typed" * 50_000
    words = [*PROGRAM, "jobs", "exec", "-it", job, "--", "sh"]
    # The terminal's size comes on its own way, and may come after the prompt.
    sized = 'until [ "$(stty size)" = "33 99" ]; do sleep 0.1; done; tty; exit 6\n'
    elsewhere = {"COLUMNS": "80", "LINES": "24"}
    shown = on_terminal(words, site.environment(acme) | elsewhere, sized)
    assert "/dev/pts/" in shown.text
    assert shown.code == 6
    missing = site.command(acme, "jobs", "exec", job, "--", "no-such-program", check=False)
    assert missing.returncode in (1, 126, 127)
    follower = subprocess.Popen(
        [*PROGRAM, "jobs", "logs", "-f", job],
        env=site.environment(acme), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert follower.stdout is not None
    numbers = [int(follower.stdout.readline().split()[1]) for _ in range(4)]
    assert numbers == [0, 1, 2, 3]
    site.rest("POST", f"/fine_tuning/jobs/{job}/cancel", acme.key)
    site.cluster.kubectl("delete", "pod", "worker", "-n", acme.namespace, "--grace-period=1")
    assert follower.wait(60) == 0


def start_job(site: AccessSite, team: Team, folder: Path) -> str:
    """A job that is placed in the cluster."""
    with Client(site.windlass.url, site.windlass.owner_key) as client:
        client.models.import_folder("base", made_once.tiny_model(), for_everyone=True)
    path = folder / "train.jsonl"
    path.write_text("".join(json.dumps(one.to_row()) + "\n" for one in split()[0]))
    words = ("jobs", "create", "--model", "base", "--training-file", str(path), "-o", "name")
    job = site.command(team, *words).stdout.strip()

    def placed() -> bool:
        found = site.rest("GET", f"/fine_tuning/jobs/{job}", team.key)
        assert found["status"] != "failed", found["error"]
        return bool(found["windlass"]["cluster"] == site.cluster_id)

    wait_until(placed, "the job is placed")
    return job


class Lines:
    """Output of a command, line by line, and its input."""

    def __init__(self, process: "subprocess.Popen[str]"):
        self._process = process

    def __iter__(self) -> "Lines":
        return self

    def __next__(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise StopIteration
        return line

    def say(self, text: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(text)
        self._process.stdin.flush()


@contextlib.contextmanager
def following(
    site: AccessSite, team: Team, *words: str, dialect: Dialect = WEBSOCKET
) -> Iterator[Lines]:
    """kubectl that goes on until the end of the block."""
    process = site.start(team, *words, dialect=dialect)
    try:
        yield Lines(process)
    finally:
        process.kill()
        process.communicate()


class Shown:
    """Result of a command on a terminal."""

    def __init__(self, text: str, code: int):
        self.text = text
        self.code = code


def on_terminal(words: list[str], environment: dict[str, str], typed: str) -> Shown:
    """Runs a command at a terminal of 99 columns and 33 rows, and types into it."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 99, 0, 0))
    done = subprocess.Popen(
        words, stdin=theirs, stdout=theirs, stderr=theirs, env=environment,
        start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )  # fmt: skip
    os.close(theirs)
    seen, told = b"", False
    with contextlib.suppress(OSError):
        while select.select([ours], [], [], 60)[0] and (piece := os.read(ours, 4096)):
            seen += piece
            # The shell's prompt, behind which busybox asks the terminal where the cursor is.
            if not told and (b"$ " in seen or b"# " in seen):
                told = True
                os.write(ours, typed.encode())
    os.close(ours)
    return Shown(seen.decode(), done.wait(60))
