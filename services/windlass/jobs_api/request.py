"""The type of the body, and its decoding."""

import asyncio
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from windlass.backends import InvalidConfig, methods
from windlass.backends.bounds import Seed
from windlass.backends.hyperparameters import Supervised
from windlass.core.errors import InvalidArgument
from windlass.jobs_api import refusals
from windlass.jobs_api.evaluation import PRINTABLE, AskedEvaluation, FileId
from windlass.jobs_api.extension import CheckedExtension, Extension
from windlass.jobs_api.integrations import Integration, kind_of
from windlass.jobs_api.methods import Hyperparameters, Method
from windlass.modelfiles.naming import MODEL_NAME_LENGTH

# A python grader brings its source.
GRADER_BYTES = 512 * 1024
# Of all else.
DOCUMENT_BYTES = 64 * 1024
# Decoding more, and looking for what is wrong with it, is no work for a loop.
LONG = 64 * 1024
GRADER = "method.reinforcement.grader"
EVALUATION = "windlass.evaluation"

ModelName = Annotated[str, Meta(min_length=1, max_length=MODEL_NAME_LENGTH, pattern=PRINTABLE)]
# Safe in a name and in a path.
Suffix = Annotated[str, Meta(pattern=r"^(?!.*\.\.)[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")]
MetadataKey = Annotated[str, Meta(min_length=1, max_length=64)]
MetadataValue = Annotated[str, Meta(max_length=512)]
Metadata = Annotated[dict[MetadataKey, MetadataValue], Meta(max_length=16)]


class CreateJob(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A fine-tuning job to create. `hyperparameters` is OpenAI's older place for those of `method`.

    A seed is drawn where none is given.
    """

    model: ModelName
    training_file: FileId
    validation_file: FileId | None = None
    suffix: Suffix | None = None
    seed: Seed | None = None
    method: Method | None = None
    hyperparameters: Supervised | None = None
    integrations: Annotated[list[Integration], Meta(max_length=5)] | None = None
    metadata: Metadata | None = None
    windlass: Extension | None = None

    def __post_init__(self) -> None:
        if self.windlass is not None and self.windlass.document:
            if self.method is not None or self.hyperparameters is not None:
                raise InvalidArgument(
                    "method and windlass.document cannot both be given.", param="method"
                )
        else:
            self.choose_method()
        if self.hyperparameters is not None and self.method and self.method.hyperparameters:
            raise InvalidArgument(
                "hyperparameters must be given within method, not beside it.",
                param="hyperparameters",
            )
        kinds = [kind_of(entry) for entry in self.integrations or ()]
        for index, kind in enumerate(kinds):
            if kind in kinds[:index]:
                at = f"integrations.{index}.type"
                raise InvalidArgument(f"{at}: only one {kind} integration is allowed.", param=at)

    def choose_method(self) -> str:
        """Returns OpenAI's method or ours, `supervised` for neither; raises InvalidArgument."""
        openai = self.method.type if self.method is not None else ""
        try:
            return methods.choose(openai, self.windlass.method if self.windlass else None)
        except InvalidConfig as error:
            raise InvalidArgument(f"{error}.", param=error.field) from None

    @property
    def grader(self) -> bytes:
        """JSON; empty for none."""
        reinforcement = self.method.reinforcement if self.method else None
        return bytes(reinforcement.grader) if reinforcement else b""

    @property
    def evaluation(self) -> AskedEvaluation | None:
        """The comparison that is asked for."""
        return self.windlass.evaluation if self.windlass else None

    @property
    def given_hyperparameters(self) -> Hyperparameters | None:
        """The hyperparameters of the method, wherever they are given."""
        return (self.method and self.method.hyperparameters) or self.hyperparameters


class CheckJob(CreateJob, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A fine-tuning job to check, whose files may not be uploaded yet."""

    training_file: FileId = ""
    windlass: CheckedExtension | None = None


_DECODERS = {kind: msgspec.json.Decoder(kind) for kind in (CreateJob, CheckJob)}


def decode(body: bytes, kind: type[CreateJob] = CreateJob) -> CreateJob:
    """The request that a body stands for; raises InvalidArgument that names the field at fault."""
    if len(body) > GRADER_BYTES + DOCUMENT_BYTES:
        raise InvalidArgument(f"The body exceeds {GRADER_BYTES + DOCUMENT_BYTES} bytes.")
    if b"\\u0000" in body:
        refusals.refuse_unstorable(body)
    try:
        request = _DECODERS[kind].decode(body)
    except msgspec.ValidationError as error:
        raise refusals.of(error, body, kind) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        refusals.refuse_unstorable(body)
        raise refusals.unreadable(error) from None
    graders = {GRADER: request.grader}
    if request.evaluation is not None:
        graders[f"{EVALUATION}.grader"] = bytes(request.evaluation.grader)
    for at, grader in graders.items():
        if len(grader) > GRADER_BYTES:
            raise InvalidArgument(f"{at} exceeds {GRADER_BYTES} bytes.", param=at)
    if len(body) - sum(map(len, graders.values())) > DOCUMENT_BYTES:
        raise InvalidArgument(f"The body exceeds {DOCUMENT_BYTES} bytes beside its grader.")
    return request


async def decoded(body: bytes, kind: type[CreateJob] = CreateJob) -> CreateJob:
    """The same, in a thread where the body is long."""
    return await asyncio.to_thread(decode, body, kind) if len(body) > LONG else decode(body, kind)
