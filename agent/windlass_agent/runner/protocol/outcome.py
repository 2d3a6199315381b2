"""Outcomes of attempts, and the reasons of failures."""

import errno
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

from windlass.api.runner.v1 import runner_pb2 as pb
from windlass_agent.machine.path_redaction import redact_paths
from windlass_agent.machine.program_output import before_dump, last_error, one_line, tail

_TAIL_LINES = 20
_TAIL_CHARACTERS = 2000
_MESSAGE_CHARACTERS = 2000
_KILLED = (-9, 137)
OUT_OF_MEMORY = "out_of_memory"
_MEMORY_SIGNS = ("out of memory", "OutOfMemoryError", "Cannot allocate memory", "MemoryError")
# What a kubelet reads of a termination message.
_MESSAGE_BYTES = 4096
_DISK_FULL = "No space left on device"


class OutcomeKind(StrEnum):
    """The three ends of an attempt."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"


class Failure(Exception):
    """A job that cannot succeed: a stable code, a sentence for people, the field at fault."""

    def __init__(self, code: str, message: str, *, param: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.param = param


class Stopped(Exception):
    """The attempt was asked to stop before its work was done."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The end of an attempt, as Finish tells it."""

    verdict: OutcomeKind
    error_code: str = ""
    error_message: str = ""
    error_param: str = ""
    trained_tokens: int = 0

    def to_proto(self, last_seq: int) -> pb.FinishRequest:
        """The request that reports it."""
        return pb.FinishRequest(
            outcome=pb.Outcome.Value(f"OUTCOME_{self.verdict.name}"),
            error_code=self.error_code,
            error_message=self.error_message,
            error_param=self.error_param,
            trained_tokens=self.trained_tokens,
            last_seq=last_seq,
        )


def leaf(error: BaseException) -> BaseException:
    """The first exception of a group, or the exception itself."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def of_error(error: BaseException, *, trained_tokens: int) -> Outcome:
    """The outcome that an exception means for the job."""
    error = leaf(error)
    if isinstance(error, Stopped):
        return Outcome(verdict=OutcomeKind.STOPPED, trained_tokens=trained_tokens)
    if not isinstance(error, Failure):
        error = _named(error)
    return Outcome(
        verdict=OutcomeKind.FAILED,
        error_code=error.code,
        error_message=one_line(error.message, characters=_MESSAGE_CHARACTERS),
        error_param=error.param,
        trained_tokens=trained_tokens,
    )


def of_exit(code: int, log: Path, *, memory_kills: int) -> Failure:
    """Returns why a trainer that ended with `code` failed, by its code and its last error.

    `memory_kills` is how often the kernel killed for memory meanwhile: without one, it
    was killed for another reason.
    """
    return of_code(code, last_output(log), memory_kills=memory_kills)


def of_code(code: int, output: str, *, memory_kills: int, who: str = "The trainer") -> Failure:
    """Returns why a process failed, by its code and the end of its output."""
    # What followed may have been printed after the cause, and a dump of frames is long.
    words = "\n".join(_end(text) for text in (output, before_dump(output)))
    if code in _KILLED and not memory_kills:
        return Failure(
            "ProcessKilled", f"{who} was killed from outside, not for running out of memory."
        )
    if code in _KILLED or any(sign in words for sign in _MEMORY_SIGNS):
        return Failure(
            OUT_OF_MEMORY,
            f"{who} ran out of memory.",
            param="hyperparameters",
        )
    if _DISK_FULL in words:
        return _disk_full()
    error = last_error(output)
    said = f": {error}" if error else " and no output."
    return Failure("trainer_failed", f"{who} ended with code {code}{said}")


def _end(output: str) -> str:
    return "\n".join(output.splitlines()[-_TAIL_LINES:])[-_TAIL_CHARACTERS:]


def last_output(log: Path) -> str:
    """The end of a log without the machine's paths."""
    return redact_paths(tail(log), log.parent)


def write_exit(
    workdir: Path, outcome: Outcome, *, last_seq: int, reported: bool, message: Path | None = None
) -> None:
    """Leaves `exit.json` for an agent that looks later: atomic, the outcome's fields.

    `reported` says whether the agent has taken Finish. `message` is a container's termination
    message, a mounted file that cannot be replaced: it gets the same, cut to what it holds.
    """
    document = {
        "outcome": outcome.verdict.value,
        "error_code": outcome.error_code,
        "error_message": outcome.error_message,
        "error_param": outcome.error_param,
        "trained_tokens": outcome.trained_tokens,
        "last_seq": last_seq,
        "reported": reported,
    }
    draft = workdir / "exit.json.draft"
    draft.write_bytes(msgspec.json.encode(document))
    draft.replace(workdir / "exit.json")
    if message is not None:
        message.write_bytes(_cut(document))


def _cut(document: dict[str, Any]) -> bytes:
    while len(content := msgspec.json.encode(document)) > _MESSAGE_BYTES:
        text = document["error_message"]
        document = document | {"error_message": text[: len(text) * 3 // 4]}
    return content


def _named(error: BaseException) -> Failure:
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return _disk_full()
    return Failure("runner_failed", f"The runner failed: {type(error).__name__}: {error}")


def _disk_full() -> Failure:
    return Failure("disk_full", "The machine that ran the job has no disk space left.")
