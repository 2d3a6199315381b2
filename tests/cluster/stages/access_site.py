"""Windlass, a real cluster with its agent, two teams, and kubectl in their hands."""

import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.cluster.cluster import TestCluster
from tests.cluster.objects import pods
from tests.cluster.provision import programs
from tests.cluster.stages.agents import joined
from tests.support.environments.postgres import reachable_folder, remove_database
from tests.support.processes import warm
from tests.support.processes.shell import PROGRAM
from tests.support.processes.windlass import Windlass, free_port, make_single, running
from tests.support.waiting import wait_until

# Says a line each half second, and what is typed; serves `hi` on port 8080.
SCRIPT = """
mkdir -p /tmp/www && echo hi > /tmp/www/index.html && httpd -p 8080 -h /tmp/www
(i=0; while true; do echo line $i; i=$((i+1)); sleep 0.5; done) &
while read word; do echo heard $word; done; wait
"""


@dataclass(frozen=True)
class Dialect:
    """A kubectl, and how it speaks to a pod."""

    name: str
    environment: Mapping[str, str] = field(default_factory=dict)
    # Of 1.28, which knew SPDY alone; else the cluster's own.
    old: bool = False

    def program(self, cluster: TestCluster) -> str:
        """Its path; a skip where the old one is not built, for a cluster of somebody's own."""
        try:
            return str(programs.program("old-kubectl") if self.old else cluster.kubectl.program)
        except programs.Unbuilt as error:
            pytest.skip(str(error))


WEBSOCKET = Dialect("websocket")
SPDY = Dialect(
    "spdy",
    {
        "KUBECTL_REMOTE_COMMAND_WEBSOCKETS": "false",
        "KUBECTL_PORT_FORWARD_WEBSOCKETS": "false",
    },
)
OLD = Dialect("old", old=True)


@dataclass
class Team:
    """A project with a place in the cluster, and a kubeconfig that the command printed."""

    project: str
    key: str
    key_id: str
    namespace: str
    kubeconfig: Path


@dataclass
class AccessSite:
    """All of it."""

    windlass: Windlass
    cluster: TestCluster
    folder: Path
    cluster_id: str = ""
    teams: dict[str, Team] = field(default_factory=dict)

    def rest(self, method: str, path: str, key: str = "", **body: Any) -> Any:
        with self.windlass.http(key or None) as http:
            answer = http.request(method, f"/v1{path}", json=body or None)
        assert answer.is_success, answer.text
        return answer.json()

    def team(self, name: str) -> Team:
        """A new project, ready in the cluster."""
        project = self.rest("POST", "/projects", title=name)["id"]
        made = self.rest("POST", "/api_keys", name=name, project_id=project)
        path = f"/clusters/{self.cluster_id}/assignments"
        namespace = self.rest("PUT", f"{path}/{project}", priority_class="")["namespace"]
        self.cluster.remove_after("namespace", namespace)

        def ready() -> bool:
            found = self.rest("GET", path)["data"]
            return any(one["project_id"] == project and one["ready"] for one in found)

        wait_until(ready, f"{name} is ready")
        team = Team(project, made["value"], made["id"], namespace, self.folder / f"{name}.yaml")
        printed = self.command(team, "clusters", "kubeconfig", self.cluster_id).stdout
        # kubectl starts its plugin for each command.
        plugin = str(warm.FORKS.program(Path(PROGRAM[0])))
        assert PROGRAM[0] in printed
        team.kubeconfig.write_text(printed.replace(PROGRAM[0], plugin))
        self.teams[name] = team
        return team

    def environment(self, team: Team) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("WINDLASS", "OPENAI"))}
        home = self.folder / team.project
        home.mkdir(exist_ok=True)
        ours = {"WINDLASS_API_KEY": team.key, "WINDLASS_BASE_URL": self.windlass.url}
        return kept | ours | {"HOME": str(home), "XDG_CONFIG_HOME": str(home)}

    def command(
        self, team: Team, *words: str, given: str = "", check: bool = True
    ) -> "subprocess.CompletedProcess[str]":
        """`windlass`, as one of the team."""
        environment = self.environment(team)
        done = warm.command(
            *words, given=given, environment=environment, folder=Path.cwd(), timeout=120
        )
        assert done.returncode == 0 or not check, done.stderr
        return done

    def words(self, team: Team, *words: str, dialect: Dialect = WEBSOCKET) -> list[str]:
        """The command line of kubectl, as one of the team."""
        cache = self.folder / team.project / "cache"
        program = dialect.program(self.cluster)
        return [program, f"--kubeconfig={team.kubeconfig}", f"--cache-dir={cache}", *words]

    def kubectl(
        self, team: Team, *words: str, given: str = "", dialect: Dialect = WEBSOCKET
    ) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            self.words(team, *words, dialect=dialect),
            input=given,
            env=self.environment(team) | dict(dialect.environment),
            capture_output=True,
            text=True,
            timeout=120,
        )

    def start(
        self, team: Team, *words: str, dialect: Dialect = WEBSOCKET
    ) -> "subprocess.Popen[str]":
        """kubectl that goes on."""
        return subprocess.Popen(
            self.words(team, *words, dialect=dialect),
            env=self.environment(team) | dict(dialect.environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def pod(self, team: Team, name: str, script: str = SCRIPT, **labels: str) -> str:
        """A pod that by default talks, listens and serves; running when this returns."""
        spec = pods.spec(
            self.cluster.image,
            ["sh", "-c", script],
            stdin=True,
            volumeMounts=[{"name": "tmp", "mountPath": "/tmp"}],
            resources={"requests": {"cpu": "10m"}},
        )
        spec["volumes"] = [{"name": "tmp", "emptyDir": {}}]
        made = pods.pod(team.namespace, name, spec)
        made["metadata"]["labels"] = labels
        self.cluster.apply(made)
        wait = ("wait", "--for=condition=Ready", f"pod/{name}", "-n", team.namespace)
        self.cluster.kubectl(*wait, "--timeout=90s")
        return name


@contextmanager
def access_site(cluster: TestCluster) -> Iterator[AccessSite]:
    """Runs until the end of the block."""
    with reachable_folder() as folder, ExitStack() as stack:
        address = f"127.0.0.1:{free_port()}"
        settings = {
            "agent": {"enabled": False},
            "grpc": {"listen": address},
            "sessions": {"kubernetes": {"listen": f"127.0.0.1:{free_port()}"}},
        }
        made = make_single(folder / "data", settings)
        stack.callback(remove_database, made.data)
        site = AccessSite(stack.enter_context(running(made)), cluster, folder)
        agent = joined(
            stack.enter_context(made.http()), cluster, folder / "agent",
            address=f"grpc://{address}", settings=partial(_settings, cluster),
        )  # fmt: skip
        site.cluster_id = stack.enter_context(agent).cluster_id
        yield site


def _settings(cluster: TestCluster, home: str, _: int) -> dict[str, Any]:
    return {
        "image": cluster.image,
        "agent_namespace": home,
        "agent_address": f"{cluster.host}:1",
        # More than any node has: jobs are placed, and their own pods wait.
        "sizes": {"memory_bytes": 2**42},
    }


def fetched(port: int) -> str:
    """The content that a forwarded port serves; empty while nothing answers."""
    try:
        return httpx.get(f"http://127.0.0.1:{port}/", timeout=5).text
    except httpx.TransportError:
        return ""
