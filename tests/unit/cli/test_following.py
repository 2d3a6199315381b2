"""Progress of a training, by its events alone."""

from typing import Any

import pytest
import typer

from windlass.cli.jobs import following
from windlass.client.display.progress import TrainingProgress, duration, event_line
from windlass.client.transport.urls import at


def metrics(step: int, created_at: int, **values: float) -> dict[str, Any]:
    data = {"step": step, "total_steps": 100, **values}
    return {"type": "metrics", "created_at": created_at, "data": data}


def after(*events: dict[str, Any]) -> TrainingProgress:
    state = TrainingProgress()
    for event in events:
        state = state.after(event)
    return state


def test_time_left_follows_the_events_and_not_their_arrival() -> None:
    state = after(metrics(1, 1000, train_loss=2.0), metrics(11, 1020, tokens_per_second=1234.0))
    assert (state.step, state.total, state.loss) == (11, 100, 2.0)
    assert state.seconds_left == 178
    assert state.describe() == "loss 2 · 1,234 tokens/s · 2:58 left"


def test_a_resumed_attempt_is_measured_anew() -> None:
    state = after(metrics(1, 1000), metrics(50, 1100), metrics(40, 5000), metrics(50, 5010))
    assert state.seconds_left == 50


def test_a_pause_is_not_counted_as_training() -> None:
    paused = after(
        metrics(1, 1000, attempt=1), metrics(50, 1100, attempt=1), metrics(51, 9000, attempt=2)
    )
    assert paused.seconds_left is None
    assert paused.after(metrics(61, 9020, attempt=2)).seconds_left == 78
    # As a server tells it that does not number attempts, to who watched the pause.
    watched = after(metrics(1, 1000), metrics(50, 1100)).interrupted()
    assert watched.seconds_left is None
    assert watched.after(metrics(51, 9000)).after(metrics(61, 9020)).seconds_left == 78


def test_a_reward_comes_before_the_loss() -> None:
    state = after(metrics(3, 1000, train_loss=-1e-9, train_mean_reward=0.625))
    assert state.describe() == "reward 0.625 · loss 0"


def test_nothing_is_promised_before_it_is_known() -> None:
    assert after(metrics(1, 1000)).seconds_left is None
    assert after(metrics(1, 1000), metrics(2, 1000)).seconds_left is None
    assert TrainingProgress().describe() == ""


def test_a_message_changes_nothing() -> None:
    state = after(metrics(3, 1000))
    assert state.after({"type": "message", "message": "hi", "data": None}) is state


def test_an_event_is_one_harmless_line() -> None:
    line = event_line({"created_at": 0, "level": "warn", "message": "a\nb\x1b[2J"})
    assert line.isprintable()
    assert "warn: a b" in line


def test_a_duration_shows_hours_only_where_there_are_some() -> None:
    assert (duration(59.6), duration(61), duration(3725)) == ("1:00", "1:01", "1:02:05")


def test_an_id_is_one_segment_of_a_path() -> None:
    assert at("/v1/models", "a/../b?c#d") == "/v1/models/a%2F..%2Fb%3Fc%23d"
    assert at("/v1/models", "ft:toy:acme:x:1") == "/v1/models/ft:toy:acme:x:1"


@pytest.mark.parametrize("told", [True, False])
def test_a_failure_is_said_once(told: bool, capsys: pytest.CaptureFixture[str]) -> None:
    error = {"code": "trainer_failed", "message": "It ended with code 1.", "param": None}
    with pytest.raises(typer.Exit) as ended:
        following.judge({"id": "ftjob-1", "status": "failed", "error": error}, told=told)
    why = "" if told else ": It ended with code 1."
    assert ended.value.exit_code == 1
    assert capsys.readouterr().err == f"windlass: Job ftjob-1 failed{why} (trainer_failed)\n"
