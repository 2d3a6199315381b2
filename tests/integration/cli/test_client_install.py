"""`pip install windlass` without extras, on every Python that it supports."""

import json
import subprocess
from pathlib import Path

import pytest
from tests.support.environments import client_env
from tests.support.processes.shell import Shell

# Of a server, an agent and a trainer: nobody who only calls a server should wait for them.
SERVERS_ALONE = (
    "grpc", "google.protobuf", "sqlalchemy", "psycopg", "boto3", "fastapi", "uvicorn", "aiohttp",
    "cryptography", "pydantic_settings", "structlog", "prometheus_client", "kubernetes", "torch",
    "transformers", "pyarrow", "openai",
)  # fmt: skip
VERSIONS = ["3.14", "3.13", "3.12", "3.11"]
CALLS = """
import sys
from importlib.util import find_spec
from windlass.backends import BuiltinTrainer, TRLConfig
from windlass.client import Windlass, WindlassError

found = [name for name in sys.argv[3:] if find_spec(name.partition(".")[0])]
with Windlass(sys.argv[1], sys.argv[2]) as windlass:
    try:
        windlass.train(BuiltinTrainer(config=TRLConfig()), model="none", training_file="file-none")
    except WindlassError as error:
        # Whichever of the two is looked up first.
        refused = error.param in ("model", "training_file")
    print(found, windlass.get("/v1/models")["object"], refused)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return client_env.wheel(tmp_path_factory.mktemp("wheel"))


# The newest that is here; what is older than that differs less from what all other tests run on.
@pytest.mark.parametrize(
    "versions",
    [
        pytest.param(VERSIONS, id="newest"),
        *(pytest.param([one], id=one, marks=pytest.mark.long) for one in VERSIONS),
    ],
)
def test_the_client_alone_calls_a_server(
    shell: Shell, wheel: Path, tmp_path: Path, versions: list[str]
) -> None:
    programs = client_env.installed(wheel, client_env.interpreter(*versions), tmp_path / "a client")

    def run(*command: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [programs / command[0], *command[1:]],
            env=shell.environment | shell.owner,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
        )

    assert run("windlass", "--version").stdout.startswith("windlass ")
    listed = run("windlass", "models", "list", "-o", "json")
    assert (json.loads(listed.stdout), listed.stderr) == ([], "")

    server = (shell.server.url, shell.server.owner_key)
    called = run("python", "-W", "error", "-c", CALLS, *server, *SERVERS_ALONE)
    assert (called.stdout, called.stderr) == ("[] list True\n", "")

    # What only a server can do says so.
    for command in (("serve",), ("config", "example"), ("db", "status"), ("doctor",)):
        refused = run("windlass", *command)
        assert refused.returncode == 2
        assert refused.stderr.endswith("is not installed: this needs windlass[server].\n")
