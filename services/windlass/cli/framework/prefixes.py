"""Ids by their beginning: enough letters to be unique are enough."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import TYPE_CHECKING

from windlass.cli.framework.failures import USAGE, Problem

if TYPE_CHECKING:
    from windlass.client import Windlass

LENGTH = 24
# How many of the newest are searched.
SEARCHED = 1000


def job_id(client: "Windlass", given: str) -> str:
    """The whole id of a job; raises Problem when `given` fits none or several."""
    return _whole(client, given, "ftjob-", "/v1/fine_tuning/jobs", "job")


def file_id(client: "Windlass", given: str) -> str:
    """The whole id of a file; raises Problem when `given` fits none or several."""
    return _whole(client, given, "file-", "/v1/files", "file")


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """A sentence that names what is much like the word; empty when nothing is."""
    near = get_close_matches(given, list(known), n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


def _whole(client: "Windlass", given: str, prefix: str, path: str, noun: str) -> str:
    rest = given.removeprefix(prefix)
    if len(rest) >= LENGTH:
        return given
    if not rest:
        raise Problem(f"Say which {noun}.", USAGE)
    items = list(client.pages(path, limit=SEARCHED))
    found = [item["id"] for item in items if item["id"].startswith(prefix + rest)]
    if len(found) > 1:
        few = ", ".join(found[:5])
        raise Problem(
            f"{len(found)} {noun}s begin with {given!r}: {few}; type more characters.", USAGE
        )
    if not found:
        # People say the name of a file; of several the newest is meant.
        named = {str(item.get("filename", item["id"])): item["id"] for item in reversed(items)}
        near = get_close_matches(given, named, n=1) or get_close_matches(prefix + rest, named, n=1)
        hint = f" Did you mean {named[near[0]]} ({near[0]})?" if near else ""
        raise Problem(f"No {noun} begins with {given!r}.{hint}")
    return str(found[0])
