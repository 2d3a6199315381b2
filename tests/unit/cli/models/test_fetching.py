"""A fetch that has to try again says why, once for each reason."""

from types import SimpleNamespace
from typing import Any

import pytest

from windlass.cli.framework.calling import Call
from windlass.cli.framework.context import Flags
from windlass.cli.framework.output import Output, OutputFormat
from windlass.cli.models import fetching

DOWN = "The last try failed: the hub responded with status 503. The next follows in 4 s."


def look(status: str, done: int = 0, **more: Any) -> dict[str, Any]:
    rest = {"bytes_done": done, "bytes_total": 8, "retry_reason": None, "error": None}
    return {"id": "fetch-1", "model": "small", "status": status, **rest, **more}


def test_a_follower_reads_why_nothing_comes(capsys: pytest.CaptureFixture[str]) -> None:
    looks = [
        look("queued", bytes_total=None, retry_reason=DOWN),
        look("queued", bytes_total=None, retry_reason=DOWN),
        look("running", 4),
        look("running", 4, retry_reason="No answer.\x1b[2J"),
        look("succeeded", 8),
    ]
    client = SimpleNamespace(
        fetches=SimpleNamespace(create=lambda *_, **__: look("queued"), follow=lambda _: looks),
        get=lambda _: {"id": "small"},
    )
    call = Call(Flags(), Output(OutputFormat.NAME, quiet=False, color=False))
    object.__setattr__(call, "client", client)
    fetching.fetch(call, "hf://user/small")
    told = capsys.readouterr()
    assert told.out == "small\n"
    assert told.err.count(DOWN) == 1
    assert "No answer.\N{REPLACEMENT CHARACTER}[2J" in told.err


@pytest.mark.parametrize(
    ("fetch", "reason"),
    [
        (look("queued", retry_reason=DOWN), DOWN),
        (look("failed", error={"code": "no_safetensors", "message": "Pickles."}), "Pickles."),
        (look("queued", waits_for="waiting for its turn"), "waiting for its turn"),
        (look("running"), ""),
    ],
)
def test_the_list_says_why(fetch: dict[str, Any], reason: str) -> None:
    assert fetching._COLUMNS["REASON"](fetch) == reason
