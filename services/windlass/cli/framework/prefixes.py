"""Ids by their beginning: enough letters to be unique are enough."""

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


def _whole(client: "Windlass", given: str, prefix: str, path: str, noun: str) -> str:
    rest = given.removeprefix(prefix)
    if len(rest) >= LENGTH:
        return given
    if not rest:
        raise Problem(f"Say which {noun}.", USAGE)
    ids = (item["id"] for item in client.pages(path, limit=SEARCHED))
    found = [one for one in ids if one.startswith(prefix + rest)]
    if len(found) > 1:
        few = ", ".join(found[:5])
        raise Problem(
            f"{len(found)} {noun}s begin with {given!r}: {few}; type more characters.", USAGE
        )
    if not found:
        raise Problem(f"No {noun} begins with {given!r}.")
    return str(found[0])
