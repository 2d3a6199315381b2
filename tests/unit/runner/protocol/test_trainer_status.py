import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass_agent.runner.protocol.trainer_events import Began, Ended, Logged
from windlass_agent.runner.protocol.trainer_status import MalformedStatus, StatusReader


def body(percentage: int | None = None, **metrics: Any) -> bytes:
    listed = [{"name": name, "value": str(value)} for name, value in metrics.items()]
    status: dict[str, Any] = {"lastUpdatedTime": "2026-01-01T00:00:00+00:00", "metrics": listed}
    if percentage is not None:
        status["progressPercentage"] = percentage
    return json.dumps({"trainerStatus": status}).encode()


def test_a_training_is_told_from_its_first_step_to_its_last() -> None:
    reader = StatusReader()
    assert list(reader.read(body(0, total_steps=10))) == [Began(total_steps=10)]
    middle = {"current_step": 5, "total_steps": 10, "current_epoch": 0.5}
    (logged,) = reader.read(body(50, loss="1.5", num_tokens=640, **middle))
    logs = {"loss": 1.5, "num_tokens": 640.0}
    assert logged == Logged(step=5, total_steps=10, epoch=0.5, logs=logs, trained_tokens=640)
    # It says no step, but that it is over.
    last, ended = reader.read(body(100, loss="0.5"))
    assert last == Logged(step=10, total_steps=10, epoch=0.5, logs={"loss": 0.5})
    assert ended == Ended(step=10, total_steps=10, epoch=0.5)


def test_what_is_no_number_is_left_out() -> None:
    reader = StatusReader()
    list(reader.read(body(0, total_steps=2)))
    assert list(reader.read(body(1, loss="nan", note="much", grad_norm="inf"))) == []


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"[]",
        b"{}",
        b'{"trainerStatus": 1}',
        body(101),
        json.dumps({"trainerStatus": {"metrics": [{"name": "loss", "value": 1}]}}).encode(),
        json.dumps({"trainerStatus": {"metrics": [{"name": "x" * 300, "value": "1"}]}}).encode(),
    ],
)
def test_what_the_kep_has_not_is_refused(sent: bytes) -> None:
    with pytest.raises(MalformedStatus):
        list(StatusReader().read(sent))


@given(st.dictionaries(st.text(max_size=20), st.text(max_size=20), max_size=5))
def test_any_texts_are_read_or_left_out(metrics: dict[str, str]) -> None:
    for event in StatusReader().read(body(3, **metrics)):
        assert isinstance(event, Began | Logged)
