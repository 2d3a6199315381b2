"""Domain of users: records, names and the bounds on them; pure."""

import re
from dataclasses import dataclass

from windlass.api.users.v1 import users_pb2 as pb
from windlass.bounds import TITLE_LENGTH, USER_ID_LENGTH
from windlass.core.errors import FailedPrecondition, InvalidArgument, PermissionDenied
from windlass.core.rpc.auth import Principal
from windlass.policy import (
    ORGANIZATION_ROLES,
    PROJECT_ROLES,
    PROJECTS,
    grantable,
    narrowed,
    permissions_of,
    roles_with,
)

# Wakes who watches keys.
KEYS_TOPIC = "users.keys"
# A project was archived.
PROJECTS_TOPIC = "projects"


@dataclass(frozen=True, slots=True)
class Organization:
    """A tenant."""

    id: str
    title: str
    created_at: int


@dataclass(frozen=True, slots=True)
class Project:
    """An isolation scope within an organization: files, models and jobs belong to one."""

    id: str
    organization_id: str
    title: str
    created_at: int
    archived_at: int
    is_default: bool
    external_key_id: str = ""
    # Where its data stays; empty: anywhere.
    geography: str = ""
    # What a request consents to have kept may be kept; False: zero data retention.
    keeps_answers: bool = False


@dataclass(frozen=True, slots=True)
class Member:
    """A person's role in an organization (empty project) or in a project."""

    organization_id: str
    project_id: str
    user_id: str
    role: str
    created_at: int
    kind: str = "person"
    title: str = ""


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A credential of a member, without the secret itself."""

    id: str
    name: str
    organization_id: str
    project_id: str
    user_id: str
    role: str
    redacted: str
    created_at: int
    expires_at: int
    revoked_at: int
    last_used_at: int
    # Who made it and with which key; empty for one that an operator made on the machine.
    made_by: str
    parent_key_id: str
    # Whose rights it needs beside its owner's: its maker's, and those of the keys above it.
    rests_on: tuple[str, ...] = ()
    # Permissions that it is narrowed to, networks that it is taken from, and models that it is
    # for, as `llama-3` or `ft:llama-3:*`; empty: not at all.
    scopes: tuple[str, ...] = ()
    networks: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    # As `team=search`; without a meaning to us.
    tags: tuple[str, ...] = ()
    last_used_address: str = ""
    rotated_at: int = 0
    # When the secret of before the last rotation ends.
    previous_until: int = 0
    kind: str = "key"

    @property
    def permissions(self) -> frozenset[str]:
        """Permissions that the key has while everybody on whom it rests has its role."""
        return narrowed(permissions_of((self.role,)), self.scopes)


@dataclass(frozen=True, slots=True)
class Secret:
    """A stored secret of a project, without its value."""

    name: str
    project_id: str
    created_at: int
    updated_at: int


# Names of roles as principals and rows carry them.
ROLE_NAMES = {
    number: name.removeprefix("ROLE_").lower()
    for name, number in pb.Role.items()
    if number != pb.ROLE_UNSPECIFIED
}
ROLE_NUMBERS = {name: number for number, name in ROLE_NAMES.items()}
SERVICE_ACCOUNT = "service_account"
KIND_NAMES = {pb.MEMBER_KIND_PERSON: "person", pb.MEMBER_KIND_SERVICE_ACCOUNT: SERVICE_ACCOUNT}
KIND_NUMBERS = {name: number for number, name in KIND_NAMES.items()}
KEY, SESSION = "key", "session"
CREDENTIAL_NAMES = {
    pb.CREDENTIAL_KIND_KEY: KEY,
    pb.CREDENTIAL_KIND_SESSION: SESSION,
    pb.CREDENTIAL_KIND_TOKEN: "token",
}
CREDENTIAL_NUMBERS = {name: number for number, name in CREDENTIAL_NAMES.items()}


def role_name(number: int, param: str = "role") -> str:
    """The name of a role of the API; raises InvalidArgument when there is none."""
    name = ROLE_NAMES.get(pb.Role.ValueType(number))
    if name is None:
        raise InvalidArgument(f"{param} must be one of {', '.join(ROLE_NUMBERS)}.", param=param)
    return name


def require_grant(principal: Principal, wanted: str) -> None:
    """Raises PermissionDenied unless the caller may give, and so take, a role.

    One of its roles may, and its key has not been narrowed to less than the role grants.
    """
    require_role(principal.roles, wanted)
    if missing := permissions_of((wanted,)) - principal.permissions:
        raise PermissionDenied(
            f"The scopes of your key do not let you give or take the role {wanted}: they lack "
            f"{', '.join(sorted(missing))}."
        )


def require_role(roles: tuple[str, ...], wanted: str) -> None:
    """Raises PermissionDenied unless one of the caller's roles may give, and so take, the other."""
    if not any(wanted in grantable(role) for role in roles):
        raise PermissionDenied(
            f"Your role does not let you give or take the role {wanted}. Ask an owner who has it."
        )


def require_scope(role: str, project_id: str) -> None:
    """Raises InvalidArgument when the role does not fit the scope that it is given for."""
    if project_id and role not in PROJECT_ROLES:
        raise InvalidArgument(f"{role} is not a role of a project.", param="role")
    if not project_id and role not in ORGANIZATION_ROLES:
        raise InvalidArgument(f"{role} is a role of a project; name one.", param="project_id")


def require_kind(kind: str, role: str) -> None:
    """Raises InvalidArgument for a service account that would own an organization."""
    if kind == SERVICE_ACCOUNT and role in roles_with(PROJECTS):
        raise InvalidArgument(f"A service account cannot be {role}.", param="role")


def last_owner(of: str) -> FailedPrecondition:
    """The refusal to remove or demote whom nobody could replace."""
    return FailedPrecondition(
        f"This is the last owner of {of}. Make another person owner first.",
        reason="last_owner",
        param="user_id",
    )


def managed_by_directory(what: str) -> FailedPrecondition:
    """The refusal to change what the organization's directory decides on."""
    return FailedPrecondition(
        f"The organization's directory manages {what}. Change it there, or disconnect the "
        "directory first with `windlass directory disable`.",
        reason="managed_by_directory",
    )


def valid_title(title: str, param: str = "title") -> str:
    """A title as shown to people; raises InvalidArgument."""
    title = title.strip()
    if not title or len(title) > TITLE_LENGTH or not title.isprintable():
        message = f"{param} must have 1 to {TITLE_LENGTH} printable characters."
        raise InvalidArgument(message, param=param)
    return title


def valid_user(user_id: str) -> str:
    """A person's identity as an issuer names it; raises InvalidArgument."""
    if not re.fullmatch(rf"[A-Za-z0-9][A-Za-z0-9._@:+|-]{{0,{USER_ID_LENGTH - 1}}}", user_id):
        raise InvalidArgument(
            f"user_id must be 1 to {USER_ID_LENGTH} letters, digits and . _ @ : + | -, and begin "
            "with a letter or digit.",
            param="user_id",
        )
    return user_id


def valid_secret_name(name: str) -> str:
    """A secret's name, fit for a path; raises InvalidArgument."""
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_.-]{0,63}", name):
        raise InvalidArgument(
            "A secret's name is a letter, then up to 63 letters, digits, _, . or -.", param="name"
        )
    return name
