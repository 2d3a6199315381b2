"""Submission of a document as a job: files are read, everything is checked, then files are sent."""

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from windlass.cli.framework.calling import Call
from windlass.cli.framework.columns import Item
from windlass.cli.framework.failures import USAGE, Problem
from windlass.cli.framework.prefixes import did_you_mean, file_id
from windlass.cli.jobs import checking, files
from windlass.cli.jobs.creation.document import JobDocument

if TYPE_CHECKING:
    from windlass.datasets import FileSummary

_REWARDS = "method.reinforcement.grader"
_EVALUATION = "windlass.evaluation"
_FILES = {
    "training": "training_file",
    "validation": "validation_file",
    "evaluation": f"{_EVALUATION}.file",
}


def submit(call: Call, request: Item, *, dry_run: bool) -> Item:
    """The job that was created, or with `dry_run` as it would be.

    Nothing is uploaded before the server has found the rest of the request good.
    """
    document = JobDocument(copy.deepcopy(request))
    local = dict[str, Path]()
    for which, at in _FILES.items():
        given = document.take(at)
        if given and Path(str(given)).is_file():
            local[which] = Path(str(given))
        elif given:
            document.put({at: _uploaded(call, str(given))})
    if dry_run or local:
        checked = call.client.jobs.check(document.body, **_described(call, document, local))
        if dry_run:
            return checked
    for which, path in local.items():
        sent = files.send_checked(call, path, purpose=files.FINE_TUNE)
        document.put({_FILES[which]: sent["id"]})
    return call.client.jobs.create(document.body)


def _described(call: Call, document: JobDocument, local: Mapping[str, Path]) -> Item:
    """Returns what the server must know of files before upload; raises Problem for a bad one."""
    known: Item = {}
    for which, path in local.items():
        summary = checking.require_sound(call, path)
        known[f"{which}_format"] = summary.format
        if which == "training":
            known["training_examples"] = summary.examples
        _require_gradable(call, document, which, path, summary)
    return known


def _require_gradable(
    call: Call, document: JobDocument, which: str, path: Path, summary: "FileSummary"
) -> None:
    """Raises Problem for examples that a grader of the job cannot grade."""
    from windlass.datasets import formats_for
    from windlass.jobs_api.evaluation import EXAMPLES

    grader, read, most = document.get(_REWARDS), "reinforcement", None
    if which == "evaluation":
        grader, read = document.get(f"{_EVALUATION}.grader") or grader, "evaluation"
        asked = document.get(f"{_EVALUATION}.max_examples")
        most = asked if isinstance(asked, int) and asked > 0 else EXAMPLES
    if grader and summary.format in formats_for(read):
        checking.require_gradable(call, path, grader, read=read, most=most)


def _uploaded(call: Call, given: str) -> str:
    path = Path(given)
    if "/" in given or path.suffix:
        near = [str(one) for one in path.parent.glob("*")] if path.parent.is_dir() else []
        raise Problem(f"There is no file {given}.{did_you_mean(given, near)}", USAGE)
    return file_id(call.client, given)
