"""Which role may do what: the whole policy on one page."""

from windlass.core.rpc.auth import Principal

_MEMBER = frozenset({
    "self.read", "organizations.read", "projects.read", "clusters.read",
    "files.read", "files.write", "models.read", "models.write",
    "jobs.read", "jobs.write", "inference.invoke",
    # Reading what runs in the project's namespaces of clusters, and entering it.
    "sessions.read", "sessions.write",
    "usage.read", "keys.read", "keys.write", "secrets.read",
})  # fmt: skip
_PROJECT_OWNER = _MEMBER | {"members.read", "members.write", "secrets.write"}
_READER = frozenset({
    "self.read", "organizations.read", "projects.read", "members.read", "clusters.read",
})  # fmt: skip
# Grants cross the walls between projects, which are the organization's.
_ORGANIZATION_OWNER = _PROJECT_OWNER | {
    "projects.write", "audit.read", "grants.read", "grants.write",
}  # fmt: skip
_PLATFORM_ADMIN = _ORGANIZATION_OWNER | {"platform.read", "platform.write", "clusters.write"}

ROLES: dict[str, frozenset[str]] = {
    "platform_admin": _PLATFORM_ADMIN,
    "organization_owner": _ORGANIZATION_OWNER,
    "organization_reader": _READER,
    "project_owner": _PROJECT_OWNER,
    "project_member": _MEMBER,
}
PERMISSIONS = frozenset().union(*ROLES.values())


def permissions_of(roles: tuple[str, ...]) -> frozenset[str]:
    """Returns what the roles grant together; an unknown role grants nothing."""
    return frozenset().union(*(ROLES.get(role, frozenset()) for role in roles))


def decide(
    principal: Principal, permission: str, *, organization_id: str = "", project_id: str = ""
) -> tuple[bool, str]:
    """Returns whether the principal may do this to something of that tenant, and why not.

    An empty organization or project means the principal's own.
    """
    if permission not in PERMISSIONS:
        return False, f"{permission} is not a permission."
    if not principal.may(permission):
        return False, f"None of the roles {', '.join(principal.roles)} grants {permission}."
    if organization_id and organization_id != principal.organization_id:
        return False, "It belongs to another organization."
    project_bound = all(role.startswith("project") for role in principal.roles)
    if project_id and project_bound and project_id != principal.project_id:
        return False, "It belongs to another project."
    return True, ""
