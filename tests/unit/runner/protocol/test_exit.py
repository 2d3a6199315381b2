"""A runner's last word, left where an agent finds it."""

from pathlib import Path

import msgspec
import pytest

from windlass.api.clusters.v1 import clusters_pb2
from windlass.api.jobs.v1 import jobs_pb2
from windlass.api.runner.v1 import runner_pb2
from windlass_agent.executors.exits import read_exit
from windlass_agent.runner.protocol.outcome import (
    Failure,
    Outcome,
    OutcomeKind,
    of_error,
    write_exit,
)

RUN = jobs_pb2.Run(job_id="ftjob-1", attempt=2)


@pytest.mark.parametrize("verdict", OutcomeKind)
def test_an_agent_reads_what_a_runner_left(tmp_path: Path, verdict: OutcomeKind) -> None:
    outcome = Outcome(
        verdict=verdict, error_code="c", error_message="m", error_param="p", trained_tokens=7
    )
    message = tmp_path / "termination-log"
    write_exit(tmp_path, outcome, last_seq=9, reported=False, message=message)
    found = read_exit((tmp_path / "exit.json").read_bytes())
    assert found is not None
    assert found == read_exit(message.read_text())
    assert (found.outcome, found.last_seq, found.reported) == (verdict.value, 9, False)
    finish = found.to_finish(RUN)
    assert finish.run == RUN
    assert finish.finish == outcome.to_proto(9)
    assert clusters_pb2.Phase.Name(found.phase) == f"PHASE_{verdict.name}"
    assert finish.finish.outcome == runner_pb2.Outcome.Value(f"OUTCOME_{verdict.name}")


@pytest.mark.parametrize("letter", ["x", '"', "\n", "€", "\U0001f600"])
def test_a_message_fits_into_what_a_kubelet_reads(tmp_path: Path, letter: str) -> None:
    message = tmp_path / "termination-log"
    outcome = Outcome(
        verdict=OutcomeKind.FAILED, error_code="trainer_failed", error_message=letter * 9999
    )
    write_exit(tmp_path, outcome, last_seq=1, reported=True, message=message)
    assert len(message.read_bytes()) <= 4096
    found = read_exit(message.read_text())
    assert found is not None
    assert found.error_code == "trainer_failed"
    assert found.error_message.startswith(letter * 500)


@pytest.mark.parametrize(
    "content",
    ["", "Traceback (most recent call last)", "{}", '{"outcome": 1}', '{"outcome":"odd"}'],
)
def test_anything_else_is_no_last_word(content: str) -> None:
    assert read_exit(content) is None
    assert read_exit(content.encode()) is None


def test_what_is_cut_short_is_no_last_word() -> None:
    whole = msgspec.json.encode({"outcome": "failed", "error_message": "x" * 50})
    assert read_exit(whole[:40]) is None


def test_an_error_that_nobody_foresaw_is_one_line_without_paths() -> None:
    error = ExceptionGroup("in tasks", [KeyError("/srv/data/w 1/x"), ValueError("no")])
    ended = of_error(error, trained_tokens=3)
    assert (ended.error_code, ended.trained_tokens) == ("runner_failed", 3)
    assert ended.error_message == "The runner failed: KeyError: '.../w 1/x'"
    long = of_error(Failure("trainer_failed", "a\n" * 5000), trained_tokens=0).error_message
    assert "\n" not in long
    assert len(long) == 2000
