"""Scope of an organization that a principal administers."""

from windlass.core.errors import PermissionDenied
from windlass.core.rpc.auth import Principal
from windlass.policy import ALL_PROJECTS, PROJECTS


def owns_organization(principal: Principal) -> bool:
    """Returns True if it may administer every project of its organization."""
    return principal.may(PROJECTS)


def sees_organization(principal: Principal) -> bool:
    """Returns True if it may see every project of its organization."""
    return principal.may(ALL_PROJECTS)


def project_in_scope(principal: Principal, project_id: str) -> str:
    """The project that a call may administer; an organization's owner may any of its own."""
    if owns_organization(principal) or project_id == principal.project_id:
        return project_id
    if not project_id:
        return principal.require_project()
    raise PermissionDenied(
        f"project_id must be {principal.project_id}, the project of your key. Only an owner of the "
        "organization can name another one.",
        param="project_id",
    )
