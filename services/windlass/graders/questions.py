"""Questions to a grading model, and the scores of its answers."""

import re
from dataclasses import dataclass
from typing import Any

import msgspec

from windlass.graders.definitions import GraderSamplingParams, LabelModel, Message, ScoreModel
from windlass.graders.faults import Fault, Ungradable
from windlass.graders.subject import Subject
from windlass.graders.templates import LONGEST, compile_template

MAX_TOKENS = 256
_NUMBER = re.compile(r"(?<![\w.])[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?(?!\w)")


@dataclass(frozen=True)
class JudgeQuestion:
    """A chat completion to ask for."""

    model: str
    messages: tuple[dict[str, str], ...]
    sampling: GraderSamplingParams

    def body(self) -> dict[str, Any]:
        """Returns the request's body: the likeliest answer, unless another is asked for."""
        given = msgspec.to_builtins(self.sampling)
        tokens = given.pop("max_completions_tokens", MAX_TOKENS)
        return {
            "model": self.model,
            "messages": list(self.messages),
            "max_completion_tokens": tokens,
            "temperature": 0,
            **given,
        }


def question(grader: ScoreModel | LabelModel, subject: Subject) -> JudgeQuestion:
    """The question for a model; raises Ungradable when a template's variable is missing."""
    messages = [_message(message, subject) for message in grader.input]
    if sum(len(message["content"]) for message in messages) > LONGEST:
        raise Ungradable(Fault.OTHER, f"The messages exceed {LONGEST} characters.")
    if isinstance(grader, ScoreModel):
        low, high = grader.bounds
        wish = f"Answer with one number from {low:g} to {high:g}, and nothing else."
        sampling = grader.sampling_params or GraderSamplingParams()
    else:
        wish = f"Answer with exactly one of these, and nothing else: {', '.join(grader.labels)}"
        sampling = GraderSamplingParams()
    # Templates of chat models let a system message stand first alone.
    if messages[0]["role"] == "system":
        messages[0]["content"] += f"\n\n{wish}"
    else:
        messages.insert(0, {"role": "system", "content": wish})
    return JudgeQuestion(grader.model, tuple(messages), sampling)


def score_of(answer: str, grader: ScoreModel | LabelModel) -> float:
    """The score in an answer; raises Ungradable when there is none."""
    return _number(answer, grader) if isinstance(grader, ScoreModel) else _passes(answer, grader)


def _message(message: Message, subject: Subject) -> dict[str, str]:
    text = "".join(compile_template(piece).fill(subject) for piece in message.pieces)
    role = "system" if message.role == "developer" else message.role
    return {"role": role, "content": text}


def _number(answer: str, grader: ScoreModel) -> float:
    found = _NUMBER.search(answer)
    if found is None:
        raise Ungradable(
            Fault.MODEL_PARSE, f"{grader.model} did not answer with a number: {answer[:100]!r}"
        )
    (low, high), score = grader.bounds, float(found[0])
    if not low <= score <= high:
        raise Ungradable(
            Fault.MODEL_PARSE,
            f"{grader.model} answered {found[0]}, which is not between {low:g} and {high:g}.",
        )
    return score


def _passes(answer: str, grader: LabelModel) -> float:
    said = answer.strip().strip("\"'`.").casefold()
    label = next((label for label in grader.labels if label.casefold() == said), None)
    if label is None:
        raise Ungradable(
            Fault.MODEL_PARSE, f"{grader.model} did not answer with a label: {answer[:100]!r}"
        )
    return float(label in grader.passing_labels)
