"""OpenAI's graders as types, with what no type says.

The fields are those of `openai.types.graders`. Of content, graders here read text alone.
"""

import keyword
import math
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from windlass.core import misfits
from windlass.graders.faults import InvalidGrader
from windlass.graders.formula import FUNCTIONS, InvalidFormula, compile_formula
from windlass.graders.sources import SOURCE_BYTES, InvalidSource, check_source
from windlass.graders.templates import InvalidTemplate, Variable, compile_template

MAX_GRADERS = 16
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

Name = Annotated[str, Meta(min_length=1, max_length=64)]
Text = Annotated[str, Meta(max_length=65_536)]
ModelName = Annotated[str, Meta(min_length=1, max_length=256)]
Metric = Literal[
    "cosine", "fuzzy_match", "bleu", "gleu", "meteor",
    "rouge_1", "rouge_2", "rouge_3", "rouge_4", "rouge_5", "rouge_l",
]  # fmt: skip


class _Document(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    pass


class StringCheck(_Document, frozen=True, tag_field="type", tag="string_check"):
    """1 if the operation holds, else 0; `like` and `ilike` ask whether `input` has `reference`."""

    name: Name
    operation: Literal["eq", "ne", "like", "ilike"]
    input: Text
    reference: Text


class TextSimilarity(_Document, frozen=True, tag_field="type", tag="text_similarity"):
    """Similarity of two texts, in [0, 1]. `pass_threshold` is for evals, and changes no score."""

    name: Name
    evaluation_metric: Metric
    input: Text
    reference: Text
    pass_threshold: float | None = None


class InputText(_Document, frozen=True, tag_field="type", tag="input_text"):
    """A piece of a message."""

    text: Text


class OutputText(_Document, frozen=True, tag_field="type", tag="output_text"):
    """A piece of a message that a model wrote."""

    text: Text


Piece = str | InputText | OutputText


class Message(_Document, frozen=True):
    """A message to the model that grades."""

    role: Literal["user", "assistant", "system", "developer"]
    content: (
        Text | InputText | OutputText | Annotated[list[Piece], Meta(min_length=1, max_length=64)]
    )
    type: Literal["message"] = "message"

    @property
    def pieces(self) -> list[str]:
        """The texts of the content, in order."""
        content = self.content if isinstance(self.content, list) else [self.content]
        return [piece if isinstance(piece, str) else piece.text for piece in content]


Messages = Annotated[list[Message], Meta(min_length=1, max_length=64)]


class GraderSamplingParams(_Document, frozen=True):
    """Sampling parameters of the grading model."""

    max_completions_tokens: Annotated[int, Meta(ge=1, le=8192)] | None = None
    reasoning_effort: Annotated[str, Meta(max_length=16)] | None = None
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None


class ScoreModel(_Document, frozen=True, tag_field="type", tag="score_model"):
    """A number within `range` that a model gives; [0, 1] unless set."""

    name: Name
    model: ModelName
    input: Messages
    range: Annotated[list[float], Meta(min_length=2, max_length=2)] | None = None
    sampling_params: GraderSamplingParams | None = None

    @property
    def bounds(self) -> tuple[float, float]:
        """The lowest and the highest score."""
        low, high = self.range or (0.0, 1.0)
        return low, high


class LabelModel(_Document, frozen=True, tag_field="type", tag="label_model"):
    """1 if the label that a model gives is a passing one, else 0."""

    name: Name
    model: ModelName
    input: Messages
    labels: Annotated[list[Name], Meta(min_length=1, max_length=64)]
    passing_labels: Annotated[list[Name], Meta(min_length=1, max_length=64)]


class Python(_Document, frozen=True, tag_field="type", tag="python"):
    """The number that `grade(sample, item)` of a script returns.

    Scripts run in the Python of the installation, so `image_tag` is kept and changes nothing.
    """

    name: Name
    source: Annotated[str, Meta(min_length=1, max_length=SOURCE_BYTES)]
    image_tag: Annotated[str, Meta(max_length=128)] | None = None


Part = StringCheck | TextSimilarity | ScoreModel | LabelModel | Python


class Multi(_Document, frozen=True, tag_field="type", tag="multi"):
    """A formula over the scores of other graders, by their names in `graders`."""

    name: Name
    graders: dict[str, Part]
    calculate_output: str


Grader = StringCheck | TextSimilarity | ScoreModel | LabelModel | Python | Multi


def parse(document: object, *, at: str = "grader") -> Grader:
    """Reads a grader found at path `at`; raises InvalidGrader naming the field at fault.

    openai-python's type has a single grader in a multi's `graders`: it goes by its own name.
    """
    if not isinstance(document, Mapping):
        raise InvalidGrader(at, "must be an object")
    document = dict(document)
    single = document.get("graders") if document.get("type") == "multi" else None
    if isinstance(single, Mapping) and isinstance(single.get("type"), str):
        document["graders"] = {str(single.get("name", "")): single}
    try:
        grader: Grader = msgspec.convert(document, type=Grader)
    except msgspec.ValidationError as error:
        raise InvalidGrader(*misfits.place(error, at=at, of=Grader)) from None
    _check(grader, at)
    return grader


def to_document(grader: Grader) -> dict[str, Any]:
    """Returns the grader as JSON values, without what is at its default."""
    document: dict[str, Any] = msgspec.to_builtins(grader)
    return document


def parts_of(grader: Grader) -> dict[str, Part]:
    """Returns the graders that score, by name: those of a multi, or the one itself."""
    return grader.graders if isinstance(grader, Multi) else {grader.name: grader}


def item_variables(grader: Grader) -> list[Variable]:
    """Returns every variable that a dataset's items must bring."""
    texts = (text for part in parts_of(grader).values() for _, text in _texts(part, ""))
    return [variable for text in texts for variable in compile_template(text).of_item]


def _check(grader: Grader, at: str) -> None:
    if isinstance(grader, Multi):
        _check_multi(grader, at)
    else:
        _check_part(grader, at)


def _check_multi(grader: Multi, at: str) -> None:
    if not 1 <= len(grader.graders) <= MAX_GRADERS:
        raise InvalidGrader(f"{at}.graders", f"must hold 1 to {MAX_GRADERS} graders")
    for name, part in grader.graders.items():
        if not _IDENTIFIER.fullmatch(name) or keyword.iskeyword(name) or name in FUNCTIONS:
            raise InvalidGrader(
                f"{at}.graders", f"{name[:64]!r} is not a name that a formula can use"
            )
        _check_part(part, f"{at}.graders.{name}")
    try:
        compile_formula(grader.calculate_output, frozenset(grader.graders))
    except InvalidFormula as error:
        raise InvalidGrader(f"{at}.calculate_output", str(error)) from None


def _check_part(part: Part, at: str) -> None:
    match part:
        case Python():
            try:
                check_source(part.source)
            except InvalidSource as error:
                raise InvalidGrader(f"{at}.source", str(error)) from None
        case ScoreModel():
            low, high = part.bounds
            if not (math.isfinite(low) and math.isfinite(high) and low < high):
                raise InvalidGrader(f"{at}.range", "must be a lower and a higher number")
        case LabelModel():
            if unknown := [label for label in part.passing_labels if label not in part.labels]:
                raise InvalidGrader(
                    f"{at}.passing_labels", f"{unknown[0]!r} is not one of the labels"
                )
    for field, text in _texts(part, at):
        try:
            compile_template(text)
        except InvalidTemplate as error:
            raise InvalidGrader(field, str(error)) from None


def _texts(part: Part, at: str) -> Iterator[tuple[str, str]]:
    """The templates of a grader, each with the path of its field."""
    match part:
        case StringCheck() | TextSimilarity():
            yield f"{at}.input", part.input
            yield f"{at}.reference", part.reference
        case ScoreModel() | LabelModel():
            for index, message in enumerate(part.input):
                for piece in message.pieces:
                    yield f"{at}.input[{index}].content", piece
