"""OpenAI's names of what a key may do, as permissions."""

from collections.abc import Iterable

from windlass.core.errors import InvalidArgument
from windlass.policy import PERMISSIONS

_READS = frozenset(name for name in PERMISSIONS if name.endswith(".read"))
NAMES: dict[str, frozenset[str]] = {
    "api.all.read": _READS,
    "api.model.read": frozenset({"models.read"}),
    "api.model.request": frozenset({"models.read", "inference.invoke"}),
    "api.files.read": frozenset({"files.read"}),
    "api.files.write": frozenset({"files.read", "files.write"}),
    "api.fine_tuning.jobs.read": frozenset({"jobs.read"}),
    "api.fine_tuning.jobs.write": frozenset({"jobs.read", "jobs.write", "files.read"}),
    "api.usage.read": frozenset({"usage.read"}),
}


def permissions(names: Iterable[str], within: frozenset[str]) -> list[str]:
    """Permissions of scopes by OpenAI's names or ours; of OpenAI's, those `within` a role.

    Raises InvalidArgument for a name that is neither.
    """
    found: set[str] = set()
    for name in names:
        if name in PERMISSIONS:
            found.add(name)
        elif name in NAMES:
            found |= NAMES[name] & within
        else:
            known = ", ".join(NAMES)
            raise InvalidArgument(
                f"{name[:100]!r} is not a scope. Use a permission of "
                f"docs/reference/permissions.md, or one of {known}.",
                param="scopes",
            )
    return sorted(found)
