"""An import says what it does before anything is sent, and what it waits for afterwards."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.factories.feather import make_feather

from windlass.cli.framework.calling import Call
from windlass.cli.framework.context import Flags
from windlass.cli.framework.output import Output, OutputFormat
from windlass.cli.models.importing import import_model


def test_checks_here_and_at_the_server_are_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []

    @contextmanager
    def waiting(_: Output, reason: str) -> Iterator[None]:
        told.append(reason)
        yield
        told.append("")

    def complete(import_id: str) -> dict[str, Any]:
        expected = ["checking small", "", "waiting for the server to check the files"]
        assert (import_id, told) == ("import-1", expected)
        return {"id": "small"}

    monkeypatch.setattr(Output, "waiting", waiting)
    models = SimpleNamespace(send=lambda *_, **__: "import-1", complete=complete)
    about = {"windlass": {"project_id": None, "bytes": 0}}
    client = SimpleNamespace(models=models, get=lambda _: about)
    call = Call(Flags(), Output(OutputFormat.NAME, quiet=False, color=False))
    object.__setattr__(call, "client", client)
    import_model(call, make_feather(tmp_path / "small"))
    assert told[-1] == ""
