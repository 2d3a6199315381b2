"""One line on stderr, and a code."""

import stat
import sys
import tempfile
from pathlib import Path

import pytest
import typer

from windlass.cli import main
from windlass.cli.framework.failures import Problem, describe, reported
from windlass.client import ConnectionFailed, WindlassError

REFUSAL = WindlassError(
    "No such\nmodel.", status=404, code="model_not_found", param="model", request_id="req_1"
)


def ended(error: BaseException, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    with pytest.raises(typer.Exit) as exit_, reported():
        raise error
    told = capsys.readouterr()
    assert told.out == ""
    return exit_.value.exit_code, told.err


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (REFUSAL, 1, "No such model. (model_not_found, param model, request req_1)"),
        (Problem("Say which.", 2), 2, "Say which."),
        (
            ConnectionFailed("http://windlass:8080: Connection refused"),
            3,
            "Could not reach the server: http://windlass:8080: Connection refused. Is it running? "
            "--base-url or --context names another one.",
        ),
        (
            ConnectionFailed("https://windlass: [SSL: CERTIFICATE_VERIFY_FAILED] self-signed."),
            3,
            "Could not reach the server: https://windlass: [SSL: CERTIFICATE_VERIFY_FAILED] "
            "self-signed. Name its authority with --ca.",
        ),
        (FileNotFoundError(2, "No such file", "a.jsonl"), 2, "a.jsonl: No such file"),
        (
            ModuleNotFoundError("x", name="pydantic_settings"),
            2,
            "pydantic_settings is not installed: this needs windlass[server].",
        ),
    ],
)
def test_an_expected_error(
    error: Exception, code: int, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended(error, capsys) == (code, f"windlass: {line}\n")


def test_an_error_cannot_draw_on_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert "\x1b" not in ended(Problem("\x1b[31mred"), capsys)[1]


def test_an_abandoned_question_counts_as_interrupted(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(typer.Abort(), capsys)[0] == 130


def test_what_nobody_foresaw_keeps_its_traceback() -> None:
    with pytest.raises(ZeroDivisionError), reported():
        raise ZeroDivisionError


def test_the_command_keeps_the_traceback_in_a_file_of_its_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken() -> None:
        raise LookupError("data\x1b[31m\nmore")

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(sys.modules[main.__module__], "app", broken)
    with pytest.raises(SystemExit) as ended:
        main()
    told = capsys.readouterr()
    (log,) = tmp_path.iterdir()
    assert (ended.value.code, told.out) == (1, "")
    assert told.err.startswith("windlass: Internal error: LookupError: data")
    assert told.err.endswith(f" Please report it, with {log}.\n")
    assert (told.err.count("\n"), "\x1b" in told.err) == (1, False)
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    text = log.read_text()
    assert text.startswith("Traceback")
    assert 'raise LookupError("data' in text


def test_a_refusal_without_details_says_its_status() -> None:
    bare = WindlassError("Bad gateway.", status=502, code="", param="", request_id="")
    assert describe(bare) == "Bad gateway. (502)"


def test_a_request_is_named_once() -> None:
    error = WindlassError("Oh (request r1).", status=500, code="", param="", request_id="r1")
    assert describe(error) == "Oh (request r1). (500)"
