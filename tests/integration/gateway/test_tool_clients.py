"""Tools and JSON through a whole server: the how-to as printed, and the clients people use."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.clients import environments
from tests.support.factories.tool_model import ASKED, TOLD, WEATHER, make_tool_model
from tests.support.processes import pages
from tests.support.processes.windlass import Windlass, make_single, running

from windlass.client import Windlass as Client

pytestmark = pytest.mark.torch
PAGE = "how-to/call-tools.md"
SCRIPTS = Path(environments.__file__).parent
CALL = ["weather", {"city": "Rome"}]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Windlass]:
    folder = tmp_path_factory.mktemp("tools")
    model = make_tool_model(folder / "model")
    with running(make_single(folder / "data", {})) as made:
        with Client(made.url, made.owner_key) as client:
            client.models.import_folder("my-model", model)
        yield made


def said(server: Windlass, *command: str | Path, **environment: str) -> Any:
    arguments = (f"{server.url}/v1", server.owner_key, json.dumps(WEATHER), ASKED)
    done = subprocess.run(
        [*command, *arguments],
        env={"PATH": "/usr/local/bin:/usr/bin:/bin", **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    # A client may print lines of its own first.
    return json.loads(done.stdout.splitlines()[-1])


def is_trip(value: Any) -> bool:
    return value["city"] in ("Paris", "Rome") and 1 <= value["days"] <= 9


def test_the_page_on_tools_is_true(server: Windlass, capsys: pytest.CaptureFixture[str]) -> None:
    scope: dict[str, Any] = {"client": server.openai()}
    for block in pages.blocks(PAGE, "python"):
        exec(block, scope)
    called, told, trip = capsys.readouterr().out.splitlines()
    assert (called, told) == ("weather {'city': 'Rome'}", TOLD)
    assert trip.startswith("city=")


def test_langchain(server: Windlass) -> None:
    answers = said(server, environments.python(), SCRIPTS / "langchain_calls.py")
    assert (answers["called"], answers["streamed"], answers["told"]) == (CALL, CALL, TOLD)
    assert all(is_trip(answers[way]) for way in ("required", "json_schema", "function_calling"))


def test_litellm(server: Windlass) -> None:
    answers = said(server, environments.python(), SCRIPTS / "litellm_calls.py")
    assert (answers["called"], answers["streamed"]) == (CALL, CALL)
    assert is_trip(answers["json_schema"])


def test_node_and_zod(server: Windlass) -> None:
    answers = said(
        server, "node", SCRIPTS / "node_calls.cjs", NODE_PATH=str(environments.node_modules())
    )
    assert (answers["called"], answers["streamed"]) == (CALL, CALL)
    assert all(is_trip(answers[way]) for way in ("json_schema", "function_calling"))
