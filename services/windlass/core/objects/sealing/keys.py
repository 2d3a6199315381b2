"""Ownership of an object by a project, as its key says it, and the port of projects' keys."""

import re
from dataclasses import dataclass
from typing import Protocol

# By the first segment of a key: which segment is the project's id. Objects of before that have
# another form of key stay as they are.
_PLACES = {"files": 1, "artifacts": 1, "logs": 1, "models": 1, "tuning": 1, "exports": 4}
_PROJECT = re.compile(r"proj_[A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class ObjectKey:
    """A project's key for objects: 32 bytes, from which the key of each object is derived."""

    id: str
    secret: bytes


class ObjectKeys(Protocol):
    """Keys by which the objects of projects are sealed."""

    async def seals(self, project_id: str) -> bool:
        """Tells whether objects of the project are sealed; raises Unavailable."""
        ...

    async def sealing(self, project_id: str) -> ObjectKey | None:
        """Returns the key that seals now; None where objects of the project are not sealed.

        Raises Unavailable, `external_key_unavailable` while the tenant's own key is away.
        """
        ...

    async def opening(self, project_id: str, key_id: str) -> ObjectKey:
        """Returns the key that sealed an object; raises NotFound, and Unavailable as `sealing`."""
        ...


def project_of(key: str) -> str:
    """Returns the id of the project whose object has a key; empty for what is no project's."""
    segments = key.split("/")
    place = _PLACES.get(segments[0], 0)
    # The object's own name comes after the project.
    if not 0 < place < len(segments) - 1 or not _PROJECT.fullmatch(segments[place]):
        return ""
    return segments[place]
