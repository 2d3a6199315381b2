"""Permissions of each role: the whole policy on one page.

The rule of an RPC names a permission, and services ask for permissions alone. Everything else that
is said of a role follows from what it grants: where it counts, who may give it, and whether its
holder answers for an organization or a project.
"""

from collections.abc import Iterable

PLATFORM_ADMIN = "platform_admin"
ORGANIZATION_OWNER = "organization_owner"
CLUSTER_OPERATOR = "cluster_operator"
ORGANIZATION_AUDITOR = "organization_auditor"
ORGANIZATION_READER = "organization_reader"
ORGANIZATION_BILLING = "organization_billing"
PROJECT_OWNER = "project_owner"
PROJECT_MEMBER = "project_member"
PROJECT_VIEWER = "project_viewer"

# Tells a caller what it is.
SELF = "self.read"
# Reaches every project of the organization; without it a caller stays in its own.
ALL_PROJECTS = "all_projects.read"
# Makes, changes and ends keys.
KEYS = "keys.write"
# Make their holder answer for members, for an organization's projects, and for the platform.
MEMBERS = "members.write"
PROJECTS = "projects.write"
PLATFORM = "platform.write"

# Asking for a role for a time, which others approve.
_ELEVATIONS = ("elevations.read", "elevations.write")
_VIEWER = frozenset({
    SELF, "organizations.read", "projects.read", "clusters.read",
    "files.read", "models.read", "jobs.read", "tuning.read", "usage.read", "keys.read",
    *_ELEVATIONS,
})  # fmt: skip
_MEMBER = _VIEWER | {
    "files.write", "models.write", "jobs.write", "inference.invoke",
    # Runs that clients train step by step, and each step.
    "tuning.write", "tuning.invoke",
    # Trainings of engines that serve, and checkpoints of them.
    "engines.train",
    # Reading what runs in the project's namespaces of clusters, and entering it.
    "sessions.read", "sessions.write",
    KEYS, "secrets.read",
}  # fmt: skip
# Publishing lets the organization's other projects read what is the project's.
_PROJECT_OWNER = _MEMBER | {"members.read", MEMBERS, "secrets.write", "tuning.publish"}
_READER = frozenset({
    SELF, "organizations.read", "projects.read", "members.read", "clusters.read",
    ALL_PROJECTS, *_ELEVATIONS,
})  # fmt: skip
_AUDITOR = _READER | {"audit.read", "usage.read"}
_BILLING = frozenset({
    SELF, "organizations.read", "projects.read", "usage.read", ALL_PROJECTS, *_ELEVATIONS,
})  # fmt: skip
_CLUSTER_OPERATOR = _READER | {"clusters.write"}
# Grants cross the walls between projects, which are the organization's, as its directory is.
_ORGANIZATION_OWNER = (
    _PROJECT_OWNER
    | _READER
    | {PROJECTS, "audit.read", "grants.read", "grants.write", "directory.read", "directory.write"}
)
_PLATFORM_ADMIN = _ORGANIZATION_OWNER | {"platform.read", PLATFORM, "clusters.write"}

# From the strongest to the weakest.
ROLES: dict[str, frozenset[str]] = {
    PLATFORM_ADMIN: _PLATFORM_ADMIN,
    ORGANIZATION_OWNER: _ORGANIZATION_OWNER,
    CLUSTER_OPERATOR: _CLUSTER_OPERATOR,
    ORGANIZATION_AUDITOR: _AUDITOR,
    ORGANIZATION_READER: _READER,
    ORGANIZATION_BILLING: _BILLING,
    PROJECT_OWNER: _PROJECT_OWNER,
    PROJECT_MEMBER: _MEMBER,
    PROJECT_VIEWER: _VIEWER,
}
PERMISSIONS = frozenset().union(*ROLES.values())


def roles_with(permission: str) -> frozenset[str]:
    """The roles that grant a permission."""
    return frozenset(role for role, granted in ROLES.items() if permission in granted)


ORGANIZATION_ROLES = roles_with(ALL_PROJECTS)
PROJECT_ROLES = frozenset(ROLES) - ORGANIZATION_ROLES
# The last person with one of these in a scope cannot leave it.
OWNER_ROLES = roles_with(MEMBERS)
PLATFORM_ROLES = roles_with(PLATFORM)
_GRANTABLE = {
    role: frozenset(other for other in ROLES if ROLES[other] <= granted)
    for role, granted in ROLES.items()
}


# Reach into projects: their own, and those that own all of them.
INTO_PROJECTS = frozenset(role for role in ROLES if _GRANTABLE[role] & PROJECT_ROLES)
# OpenAI's names of roles in a project and in an organization.
OPENAI_PROJECT_ROLES = {"owner": PROJECT_OWNER, "member": PROJECT_MEMBER}
OPENAI_ORGANIZATION_ROLES = {"owner": ORGANIZATION_OWNER, "reader": ORGANIZATION_READER}


def openai_role(role: str) -> str:
    """OpenAI's name of a role: who administers the platform is an owner of each organization."""
    if role in OWNER_ROLES:
        return "owner"
    return "reader" if role in ORGANIZATION_ROLES else "member"


def permissions_of(roles: Iterable[str]) -> frozenset[str]:
    """The permissions that the roles grant together; an unknown role grants nothing."""
    return frozenset().union(*(ROLES.get(role, frozenset()) for role in roles))


def narrowed(permissions: frozenset[str], scopes: Iterable[str]) -> frozenset[str]:
    """Permissions that are left within a key's scopes; without scopes, all.

    A key may always ask what it is.
    """
    within = frozenset(scopes)
    return permissions & (within | {SELF}) if within else permissions


def grantable(role: str) -> frozenset[str]:
    """The roles that a holder of this one may give or take: those that grant no more."""
    return _GRANTABLE.get(role, frozenset())


def lesser(role: str, *held: Iterable[str], project_id: str) -> str | None:
    """The strongest role within `role` and the roles `held` by each of some people.

    None where there is none. A project's key stays one: it is worth a role of a project or
    nothing.
    """
    may = grantable(role) & (PROJECT_ROLES if project_id else ORGANIZATION_ROLES)
    for roles in held:
        may &= frozenset().union(*map(grantable, roles))
    return next((one for one in ROLES if one in may), None)
