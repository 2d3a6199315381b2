"""The one decision: may this caller do this, to something of that tenant?"""

from windlass.core.rpc.auth import Principal
from windlass.policy import ALL_PROJECTS, PERMISSIONS


def decide(
    principal: Principal, permission: str, *, organization_id: str = "", project_id: str = ""
) -> tuple[bool, str]:
    """Returns True if the principal may do this to something of that tenant, and why not.

    An empty organization or project means the principal's own.
    """
    if permission not in PERMISSIONS:
        return False, f"{permission} is not a permission."
    if not principal.may(permission):
        return False, f"None of the roles {', '.join(principal.roles)} grants {permission}."
    if organization_id and organization_id != principal.organization_id:
        return False, "The resource belongs to another organization."
    if project_id not in ("", principal.project_id) and not principal.may(ALL_PROJECTS):
        return False, "The resource belongs to another project."
    return True, ""
