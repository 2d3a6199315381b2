"""Program within the sandbox: the standard library alone, and the tenant's code.

The first line that it reads has the source and the limits; each further one a name, and a sample
with its item, which are answered by a line with that name.
"""

import json
import math
import os
import resource
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

_FILE = "<grader>"
_MESSAGE = 500

Grade = Callable[[dict[str, Any], dict[str, Any]], object]


def main() -> None:
    """Returns until nobody asks."""
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb", 0)
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nothing, standard)
    task = json.loads(requests.readline())
    for name, most in task["limits"].items():
        resource.setrlimit(getattr(resource, name), (most, most))
    replies.write(b"ready\n")
    grade = _load(task["source"])
    for line in requests:
        name, _, body = line.partition(b" ")
        replies.write(name + b" " + json.dumps(_answer(grade, body)).encode() + b"\n")


def _load(source: str) -> Grade:
    """The source's `grade`; of one that cannot be loaded, one that says why."""
    scope: dict[str, Any] = {"__name__": "grader"}
    try:
        exec(compile(source, _FILE, "exec"), scope)  # noqa: S102 - what all of this is for
        grade: Grade = scope["grade"]
    except BaseException as error:
        return partial(_fail, error)
    return grade


def _fail(error: BaseException, *_: object) -> NoReturn:
    raise error


def _answer(grade: Grade, body: bytes) -> dict[str, Any]:
    try:
        text, item = json.loads(body)
        found = grade(_sample(text), item)
        if not isinstance(found, int | float):
            raise TypeError(f"grade returned {type(found).__name__}, not a number")
        score = float(found)
        if not math.isfinite(score):
            raise ValueError(f"grade returned {score}, which is not finite")
    except BaseException as error:
        return {"error": _words(error)}
    return {"score": score}


def _sample(text: str) -> dict[str, Any]:
    """A sample as OpenAI's graders have it."""
    try:
        output = json.loads(text)
    except (ValueError, RecursionError):
        output = None
    message = {"role": "assistant", "content": text}
    return {"output_text": text, "output_json": output, "choices": [{"message": message}]}


def _words(error: BaseException) -> str:
    try:
        message = str(error)
    except BaseException:
        message = ""
    where = error.__traceback__
    lines = []
    while where:
        if where.tb_frame.f_code.co_filename == _FILE:
            lines.append(where.tb_lineno)
        where = where.tb_next
    at = f" (line {lines[-1]})" if lines else ""
    words = f"{type(error).__name__[:100]}: {message[:_MESSAGE]}{at}"
    return words.encode(errors="replace").decode()


if __name__ == "__main__":
    main()
