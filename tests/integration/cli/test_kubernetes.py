"""`windlass clusters kubeconfig` and `token`, against a real server with its own certificate."""

import base64
import json
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from tests.support.processes.shell import PROGRAM, Shell
from tests.support.processes.windlass import Windlass, free_port, make_single, running


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Windlass]:
    settings = {
        "agent": {"enabled": False},
        "sessions": {"kubernetes": {"listen": f"127.0.0.1:{free_port()}"}},
    }
    with running(make_single(tmp_path_factory.mktemp("cli") / "data", settings)) as server:
        yield server


@pytest.fixture(scope="module")
def cluster(server: Windlass) -> str:
    """The id of a cluster to which the owner's project is assigned as `team-a`."""
    with server.http() as http:
        made = http.post("/v1/clusters", json={"name": "east"}).json()
        project = http.get("/v1/me").json()["principal"]["project_id"]
        path = f"/v1/clusters/{made['id']}/assignments/{project}"
        http.put(path, json={"namespace": "team-a"}).raise_for_status()
    return str(made["id"])


@pytest.fixture
def shell(server: Windlass, tmp_path: Path) -> Shell:
    return Shell(server, tmp_path)


def plugin_of(kubeconfig: dict[str, Any]) -> list[str]:
    """The command that kubectl runs for a credential."""
    plugin = kubeconfig["users"][0]["user"]["exec"]
    assert plugin["apiVersion"] == "client.authentication.k8s.io/v1"
    assert plugin["interactiveMode"] == "Never"
    return [plugin["command"], *plugin["args"]]


def test_a_kubeconfig_names_the_namespace_and_holds_no_secret(
    server: Windlass, shell: Shell, cluster: str
) -> None:
    text = shell.data("clusters", "kubeconfig", "east")
    found = yaml.safe_load(text)
    assert server.owner_key not in text
    assert "token:" not in text
    assert found["contexts"][0]["context"]["namespace"] == "team-a"
    assert found["current-context"] == found["contexts"][0]["name"]
    entry = found["clusters"][0]["cluster"]
    ca = base64.b64decode(entry["certificate-authority-data"]).decode()
    command = plugin_of(found)
    assert command[:4] == [PROGRAM[0], "clusters", "token", cluster]
    assert command[4:] == ["--base-url", server.url]
    credential = json.loads(
        subprocess.run(
            command, env=shell.environment | shell.owner, check=True, capture_output=True
        ).stdout
    )
    assert credential["kind"] == "ExecCredential"
    assert credential["apiVersion"] == "client.authentication.k8s.io/v1"
    token = credential["status"]["token"]
    assert credential["status"]["expirationTimestamp"].endswith("Z")
    trust = ssl.create_default_context(cadata=ca)
    with httpx.Client(verify=trust, headers={"Authorization": f"Bearer {token}"}) as http:
        # Nothing has dialled in from this cluster; but the token is good, and the way is known.
        answer = http.get(f"{entry['server']}/version")
        assert answer.status_code == 503
        assert answer.json()["reason"] == "ServiceUnavailable"
        assert http.get(f"{entry['server']}/api/v1/nodes").status_code == 403
        http.headers["Authorization"] = "Bearer nonsense"
        assert http.get(f"{entry['server']}/version").status_code == 401
    assert json.loads(shell.data("clusters", "kubeconfig", "east", "-o", "json")) == found


def test_the_plugin_finds_the_same_server_as_the_same_person(
    server: Windlass, shell: Shell, cluster: str
) -> None:
    def options(*arguments: str, bare: bool = False) -> list[str]:
        done = shell.run("clusters", "kubeconfig", cluster, *arguments, bare=bare)
        assert done.returncode == 0, done.stderr
        command = plugin_of(yaml.safe_load(done.stdout))
        assert not any(server.owner_key in word for word in command)
        credential = shell.run(*command[1:], bare=bare)
        assert json.loads(credential.stdout)["kind"] == "ExecCredential"
        return command[4:]

    data = ["--data", str(server.data)]
    assert options(*data, bare=True) == data
    key = server.owner_key
    shell.data("auth", "login", "--base-url", server.url, "--name", "mine", given=f"{key}\n")
    assert options(bare=True) == ["--context", "mine"]
    with server.http() as http:
        project = http.get("/v1/me").json()["principal"]["project_id"]
    assert options("--project", project, bare=True) == ["--context", "mine", "--project", project]


def test_refusals_say_what_to_do(server: Windlass, shell: Shell, cluster: str) -> None:
    done = shell.run("clusters", "kubeconfig", cluster, "--api-key", server.owner_key, bare=True)
    assert done.returncode == 2
    assert "A kubeconfig holds no key" in done.stderr
    assert shell.run("clusters", "kubeconfig", "nowhere").returncode == 1
    with server.http() as http:
        project = http.post("/v1/projects", json={"title": "Elsewhere"}).json()["id"]
    done = shell.run("clusters", "token", cluster, "--project", project)
    assert done.returncode == 1
    assert "is not assigned to the cluster east" in done.stderr
    assert "windlass clusters assign" in done.stderr


def test_a_server_without_the_listener_says_so(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("plain") / "data"
    plain = make_single(folder, {"agent": {"enabled": False}})
    with running(plain) as server, server.http() as http:
        made = http.post("/v1/clusters", json={"name": "east"}).json()
        answer = http.post(f"/v1/clusters/{made['id']}/access")
    assert answer.status_code == 409
    assert answer.json()["error"]["code"] == "kubernetes_access_off"
    assert "sessions.kubernetes.listen" in answer.json()["error"]["message"]
