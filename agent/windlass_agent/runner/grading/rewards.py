"""The reward of a sampled answer: a job's grader, as a function that TRL imports by its path.

It runs in the trainer's process, which knows the grader by a file that the runner left, and an
example by its fields, which come as JSON in the column `item`. What a model has to be asked for
is asked of the runner.
"""

import http.client
import os
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from windlass.graders import Grade, Grader, Subject, models_asked, parse
from windlass_agent.runner.grading.scripts import GraderPrograms
from windlass_agent.runner.protocol import local_socket, trainer_events
from windlass_agent.runner.protocol.event_file import EventFile
from windlass_agent.runner.protocol.outcome import Failure

GRADER_VARIABLE = "WINDLASS_GRADER_FILE"
# Where the runner grades, for a grader that asks models.
GRADES_SOCKET = "WINDLASS_GRADES_SOCKET"
GRADES_PATH = "/grade"


class Sample(Struct):
    """An answer, and the example's fields as JSON."""

    sample: str
    item: str


class Reward(Struct):
    """Reward of an answer; `fault` says why it has no grade."""

    reward: float
    fault: str = ""


def graded(
    *,
    completions: Sequence[Sequence[Mapping[str, Any]]],
    item: Sequence[str],
    log_metric: Callable[[str, float], None],
    **_: Any,
) -> list[float]:
    """Returns the reward of each completion; 0 for one that the grader cannot grade.

    How many those were is logged as `ungraded`, a part of all. Raises SystemExit when the runner
    has no grades, and has said why, or when a program cannot grade, and says so itself.
    """
    samples = [
        Sample(_text(completion), fields)
        for completion, fields in zip(completions, item, strict=True)
    ]
    rewards = _asked(samples) if models_asked(_grader()) else _graded(samples)
    log_metric("ungraded", sum(bool(each.fault) for each in rewards) / len(rewards))
    return [each.reward for each in rewards]


def _graded(samples: list[Sample]) -> list[Reward]:
    subjects = [Subject.of_json(each.sample, each.item) for each in samples]
    try:
        scripts = _scripts()
        grades = [scripts.grade(subject) for subject in subjects]
        scripts.check(grades)
    except Failure as failure:
        event = trainer_events.Failed(
            code=failure.code, message=failure.message, param=failure.param
        )
        # Whichever of a node's trainers it is.
        EventFile(Path(os.environ[trainer_events.METRICS_VARIABLE])).write(event)
        raise SystemExit(1) from failure
    return [reward_of(each) for each in grades]


def reward_of(grade: Grade) -> Reward:
    """The reward of a grade, with the first of its faults."""
    return Reward(grade.reward, next(iter(grade.faults.values()), ""))


def _asked(samples: list[Sample]) -> list[Reward]:
    # Without a time limit: the runner knows for how long to wait.
    connection = http.client.HTTPConnection("runner")
    try:
        connection.sock = local_socket.connected(Path(os.environ[GRADES_SOCKET]))
        connection.request("POST", GRADES_PATH, msgspec.json.encode(samples))
        response = connection.getresponse()
        content = response.read()
    except (OSError, http.client.HTTPException) as error:
        raise SystemExit(f"The runner did not return grades: {error}") from error
    finally:
        connection.close()
    if response.status != http.client.OK:
        raise SystemExit(f"The runner did not return grades: it answered {response.status}")
    return msgspec.json.decode(content, type=list[Reward])


@cache
def _scripts() -> GraderPrograms:
    return GraderPrograms(_grader())


@cache
def _grader() -> Grader:
    return parse(msgspec.json.decode(Path(os.environ[GRADER_VARIABLE]).read_bytes()))


def _text(completion: Sequence[Mapping[str, Any]]) -> str:
    return "".join(str(message.get("content") or "") for message in completion)
