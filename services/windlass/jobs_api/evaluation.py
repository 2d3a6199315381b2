"""`windlass.evaluation` of a job: held-out examples, and the grader of both models' answers."""

from typing import Annotated

from msgspec import Meta, Raw, Struct, field

PRINTABLE = r"^[^\x00-\x1f\x7f-\x9f\u2028-\u202e]+\Z"
FileId = Annotated[str, Meta(min_length=1, max_length=128, pattern=PRINTABLE)]

EXAMPLES = 100
MAX_EXAMPLES = 1000
MAX_COMPLETION_TOKENS = 4096


class AskedEvaluation(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A comparison of the fine-tuned model with the one that training began with.

    `grader` is one of `windlass.graders`; a job that learns from rewards may leave it out, and is
    then evaluated by the grader of its method.
    """

    file: FileId
    # Its own parser reads it, as that of the method.
    grader: Raw = field(default_factory=Raw)
    # The first ones of the file.
    max_examples: Annotated[int, Meta(ge=1, le=MAX_EXAMPLES)] = EXAMPLES
    max_completion_tokens: Annotated[int, Meta(ge=1, le=MAX_COMPLETION_TOKENS)] = 256
    # 0 takes the likeliest answer.
    temperature: Annotated[float, Meta(ge=0, le=2)] = 0.0


class CheckedEvaluation(AskedEvaluation, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A comparison to check, whose file may not be uploaded yet."""

    file: FileId = ""
