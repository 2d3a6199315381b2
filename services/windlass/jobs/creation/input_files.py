"""The files of a job: whether they are there, and hold what its method learns from."""

from dataclasses import dataclass

import grpc

from windlass.api.files.v1 import files_pb2, files_pb2_grpc
from windlass.backends import methods
from windlass.core.errors import InvalidArgument, from_rpc
from windlass.datasets import formats_for
from windlass.jobs.creation.grading import READ
from windlass.jobs.domain.job import Spec
from windlass.jobs_api.query import UnsentFiles
from windlass.jobs_api.request import EVALUATION

PURPOSE = "fine-tune"
_HELD_OUT = f"{EVALUATION}.file"


@dataclass(frozen=True, slots=True)
class Inspected:
    """A job's files as they are now. `examples` is 0 until both are known to be good."""

    examples: int


NOT_SAID = UnsentFiles()


class InputFiles:
    """Looks at the files of jobs."""

    def __init__(self, files: files_pb2_grpc.FilesInternalServiceAsyncStub):
        self._files = files

    async def look(self, project_id: str, spec: Spec, unsent: UnsentFiles = NOT_SAID) -> Inspected:
        """The files; raises InvalidArgument that names the field, once one is known to be bad."""
        _require_left_out(unsent, spec)
        method, examples = spec.method, unsent.training_examples or 0
        ready = True
        if spec.training_file:
            found = await self._file(project_id, spec.training_file, "training_file", method)
            ready, examples = _is_inspected(found), max(1, found.dataset.examples)
        _require_fitting(unsent.training_format, "the training file", "training_file", method)
        if spec.validation_file:
            checked = await self._file(project_id, spec.validation_file, "validation_file", method)
            ready = ready and _is_inspected(checked)
        _require_fitting(unsent.validation_format, "the validation file", "validation_file", method)
        if spec.evaluation and spec.evaluation.file:
            held_out = await self._held_out(project_id, spec.evaluation.file)
            ready = ready and _is_inspected(held_out)
        _require_answerable(unsent.evaluation_format, "the evaluation file")
        return Inspected(examples if ready else 0)

    async def _file(self, project_id: str, file_id: str, param: str, method: str) -> files_pb2.File:
        file = await self._sound_file(project_id, file_id, param)
        _require_fitting(file.dataset.format, f"the file {file_id!r}", param, method)
        return file

    async def _held_out(self, project_id: str, file_id: str) -> files_pb2.File:
        file = await self._sound_file(project_id, file_id, _HELD_OUT)
        _require_answerable(file.dataset.format, f"the file {file_id!r}")
        return file

    async def _sound_file(self, project_id: str, file_id: str, param: str) -> files_pb2.File:
        """The file unless it is known to be bad, whatever it holds."""
        request = files_pb2.InternalGetFileRequest(project_id=project_id, file_id=file_id)
        try:
            file = await self._files.GetFile(request)
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.NOT_FOUND:
                raise from_rpc(error) from error
            raise InvalidArgument(
                f"The file {file_id!r} does not exist.", reason="file_not_found", param=param
            ) from error
        if file.purpose != PURPOSE:
            raise InvalidArgument(
                f"The file {file_id!r} has the purpose {file.purpose!r}, not {PURPOSE!r}.",
                reason="invalid_file_purpose",
                param=param,
            )
        if file.status == files_pb2.FILE_STATUS_ERROR:
            raise _bad_file(file.status_details or "The file cannot be used.", param)
        return file


def _require_left_out(unsent: UnsentFiles, spec: Spec) -> None:
    """Raises InvalidArgument for a file that is described as well as named."""
    named = {
        "training": ("training_file", spec.training_file),
        "validation": ("validation_file", spec.validation_file),
        "evaluation": (_HELD_OUT, spec.evaluation.file if spec.evaluation else ""),
    }
    for param in unsent.given:
        field, file_id = named[param.partition("_")[0]]
        if file_id:
            raise InvalidArgument(f"{param} and {field} cannot both be given.", param=param)
    if unsent.evaluation_format and not spec.evaluation:
        raise InvalidArgument(
            f"evaluation_format is only allowed with {EVALUATION}.", param="evaluation_format"
        )


def _is_inspected(file: files_pb2.File) -> bool:
    return file.status == files_pb2.FILE_STATUS_PROCESSED


def _require_fitting(held: str | None, what: str, param: str, method: str) -> None:
    """Raises InvalidArgument for a file of a format that the method does not take."""
    taken = formats_for(methods.READS[method])
    if not held or held in taken:
        return
    fitting = [name for name, read in methods.READS.items() if held in formats_for(read)]
    raise _bad_file(
        f"The method {method} takes {' or '.join(taken)} examples; {what} holds {held} examples, "
        f"for {' or '.join(fitting)}.",
        param,
    )


def _require_answerable(held: str | None, what: str) -> None:
    """Raises InvalidArgument for a file of a format of which no model can write the answers."""
    taken = formats_for(READ)
    if held and held not in taken:
        raise _bad_file(
            f"An evaluation takes {' or '.join(taken)} examples; {what} holds {held} examples.",
            _HELD_OUT,
        )


def _bad_file(message: str, param: str) -> InvalidArgument:
    kind = "evaluation_file" if param.startswith(EVALUATION) else param
    return InvalidArgument(message, reason=f"invalid_{kind}", param=param)
