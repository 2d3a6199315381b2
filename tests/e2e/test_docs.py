"""The Python of the README and of getting-started runs as it is printed."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.environments import postgres
from tests.support.processes.windlass import Windlass, make_single, running

from windlass.client import Windlass as Client
from windlass.demo.questions import split

pytestmark = pytest.mark.torch
ROOT = Path(__file__).parents[2]
PRINTED_ADDRESS = "http://127.0.0.1:8080"


@pytest.fixture(scope="module")
def windlass(base_folder: Path) -> Iterator[Windlass]:
    """A server without an agent: jobs are accepted and wait."""
    with postgres.reachable_folder() as folder:
        with running(make_single(folder / "data", {"agent": {"enabled": False}})) as made:
            with Client(made.url, made.owner_key) as client:
                for name in ("my-base", "llama-3.2-1b-instruct"):
                    client.models.import_folder(name, base_folder)
            yield made
        postgres.remove_database(folder / "data")


def blocks(path: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / path).read_text(), flags=re.DOTALL)


def test_the_printed_python_runs(
    windlass: Windlass, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "owner.key").write_text(windlass.owner_key)
    rows = "".join(json.dumps(question.to_row()) + "\n" for question in split()[0])
    for name in ("chat.jsonl", "train.jsonl"):
        (tmp_path / name).write_text(rows)
    monkeypatch.chdir(tmp_path)
    (first,) = blocks("README.md")
    create, chat = blocks("docs/getting-started.md")
    scope: dict[str, Any] = {}
    exec(first.replace(PRINTED_ADDRESS, windlass.url), scope)
    assert scope["job"].model == "my-base"
    exec(create, scope)
    assert scope["job"].model == "llama-3.2-1b-instruct"
    assert scope["job"].windlass["backend"] == "trl"
    assert "client.chat.completions.create" in chat
