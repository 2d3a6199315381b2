"""From a document to a job: files are looked at, everything is checked, then files are sent."""

from pathlib import Path

from windlass.cli.framework.calling import Call
from windlass.cli.framework.columns import Item
from windlass.cli.framework.failures import USAGE, Problem
from windlass.cli.framework.prefixes import did_you_mean, file_id
from windlass.cli.jobs import checking, files

_FILES = ("training", "validation")
EVALUATION = "evaluation"


def submit(call: Call, request: Item, *, dry_run: bool) -> Item:
    """The job that was created, or with `dry_run` as it would be.

    Nothing is uploaded before the server has found the rest of the request good.
    """
    asked, local = dict(request), dict[str, Path]()
    held_out = _take_evaluation(call, asked)
    for which in _FILES:
        given = asked.pop(f"{which}_file", None)
        if given and Path(str(given)).is_file():
            local[which] = Path(str(given))
        elif given:
            asked[f"{which}_file"] = _uploaded(call, str(given))
    if held_out:
        checking.require_sound(held_out)
    if dry_run or local or held_out:
        checked = call.client.jobs.check(asked, **_described(local))
        if dry_run:
            return checked
    if held_out:
        sent = files.send_checked(call, held_out, purpose=files.FINE_TUNE)
        evaluation = {**request["windlass"][EVALUATION], "file": sent["id"]}
        asked["windlass"] = {**request["windlass"], EVALUATION: evaluation}
    for which, path in local.items():
        asked[f"{which}_file"] = files.send_checked(call, path, purpose=files.FINE_TUNE)["id"]
    return call.client.jobs.create(asked)


def _take_evaluation(call: Call, asked: Item) -> Path | None:
    """The path of a held-out file that is not uploaded yet; its evaluation is left out of the
    request, which has to name the file.
    """
    ours = asked.get("windlass")
    evaluation = ours.get(EVALUATION) if isinstance(ours, dict) else None
    given = evaluation.get("file") if isinstance(evaluation, dict) else None
    if not ours or not isinstance(given, str):
        return None
    if Path(given).is_file():
        asked["windlass"] = {name: ours[name] for name in ours if name != EVALUATION}
        return Path(given)
    evaluation = {**(evaluation or {}), "file": _uploaded(call, given)}
    asked["windlass"] = {**ours, EVALUATION: evaluation}
    return None


def _described(local: dict[str, Path]) -> Item:
    """What the server need know of files before their upload; raises Problem for a bad one."""
    known: Item = {}
    for which, path in local.items():
        summary = checking.require_sound(path)
        known[f"{which}_format"] = summary.format
        if which == "training":
            known["training_examples"] = summary.examples
    return known


def _uploaded(call: Call, given: str) -> str:
    path = Path(given)
    if "/" in given or path.suffix:
        near = [str(one) for one in path.parent.glob("*")] if path.parent.is_dir() else []
        raise Problem(f"There is no file {given}.{did_you_mean(given, near)}", USAGE)
    return file_id(call.client, given)
