"""Failure messages for trainings that ran out of memory, with ways to use less."""

import re
from collections.abc import Mapping
from typing import Any

from windlass_agent.memory import in_units
from windlass_agent.runner.protocol.outcome import Failure

_GPU = re.compile(
    r"Tried to allocate [\d.]+ \w+\. GPU \d+ has a total capacity of [\d.]+ \w+"
    r"(?: of which [\d.]+ \w+ is free)?"
)
# By how a backend's document calls what a request calls so.
_LENGTHS = {
    "max_completion_length": "windlass.config.max_completion_length",
    "max_length": "windlass.config.max_length",
}


def explained(failure: Failure, document: Mapping[str, Any], log: str, *, limit: int) -> Failure:
    """The failure with the numbers: of the GPU as torch's `log` has them, else `limit` in bytes.

    `document` is the backend's configuration; of one that names no batch, nothing is said.
    """
    found = _GPU.findall(log)
    had = f"{found[-1]}." if found else f"It may use {in_units(limit)}." if limit else ""
    message = " ".join(text for text in (failure.message, had, _advice(document)) if text)
    return Failure(failure.code, message, param=failure.param)


def _advice(document: Mapping[str, Any]) -> str:
    batch = document.get("batch_size")
    lengths = [name for name in _LENGTHS if isinstance(document.get(name), int)]
    if not isinstance(batch, int) or not lengths:
        return "A smaller batch size or a smaller model needs less."
    length = lengths[0]
    lower = [_LENGTHS[length]]
    if batch > 1:
        lower.insert(0, "hyperparameters.batch_size")
    examples = f"{batch} example{'s' if batch > 1 else ''}"
    return (
        f"It trained on {examples} of up to {document[length]} tokens at once: lower "
        f"{' or '.join(lower)}, take a smaller model, or ask for more in windlass.resources."
    )
