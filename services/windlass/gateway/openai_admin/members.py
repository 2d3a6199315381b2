"""Members as OpenAI's users and service accounts, and the names of their roles there."""

from collections.abc import Iterable, Mapping

from windlass.api.users.v1 import users_pb2 as pb
from windlass.api.users.v1 import users_pb2_grpc as rpc
from windlass.bounds import MAX_NAMED_MEMBERS
from windlass.core.errors import InvalidArgument, NotFound
from windlass.gateway.openai.rendering import Json
from windlass.gateway.plain import enum_name
from windlass.policy import OPENAI_ORGANIZATION_ROLES, OPENAI_PROJECT_ROLES, openai_role


def role_of(member: pb.Member) -> str:
    """OpenAI's name of a member's role."""
    return openai_role(enum_name(pb.Role.DESCRIPTOR, member.role))


def role_number(name: str, *, of_project: bool) -> "pb.Role.ValueType":
    """The role of OpenAI's name in a project or the organization; raises InvalidArgument."""
    roles = OPENAI_PROJECT_ROLES if of_project else OPENAI_ORGANIZATION_ROLES
    if name not in roles:
        raise InvalidArgument(f"role must be one of {', '.join(roles)}.", param="role")
    return pb.Role.Value(f"ROLE_{roles[name].upper()}")


def email(member: pb.Member | None, user_id: str) -> str:
    """The address of a member, or an id that is one of who is none; empty for no address."""
    if member is not None:
        return member.email
    return user_id if "@" in user_id else ""


def title(member: pb.Member | None, user_id: str) -> str:
    """The name by which people call a member; the id of who is none."""
    known = member or pb.Member()
    return known.title or known.name or user_id


async def find(
    users: rpc.UsersServiceAsyncStub,
    project_id: str,
    user_ids: Iterable[str],
    kind: "pb.MemberKind.ValueType" = pb.MEMBER_KIND_UNSPECIFIED,
) -> Mapping[str, pb.Member]:
    """Members of a project, or of the organization, by their ids; those that there are."""
    wanted = sorted(set(user_ids))[:MAX_NAMED_MEMBERS]
    if not wanted:
        return {}
    answer = await users.ListMembers(
        pb.ListMembersRequest(
            project_id=project_id, user_ids=wanted, kind=kind, limit=MAX_NAMED_MEMBERS
        )
    )
    return {member.user_id: member for member in answer.members}


async def get(
    users: rpc.UsersServiceAsyncStub,
    project_id: str,
    user_id: str,
    kind: "pb.MemberKind.ValueType",
) -> pb.Member:
    """Returns one member of a kind; raises NotFound."""
    found = (await find(users, project_id, [user_id], kind)).get(user_id)
    if found is None:
        what = "service account" if kind == pb.MEMBER_KIND_SERVICE_ACCOUNT else "user"
        raise NotFound(f"No {what} {user_id!r}.", param="user_id")
    return found


def render_project_user(member: pb.Member) -> Json:
    """A person of a project in OpenAI's shape."""
    return {
        "id": member.user_id,
        "object": "organization.project.user",
        "name": title(member, member.user_id),
        "email": member.email or None,
        "role": role_of(member),
        "added_at": member.created_at,
    }


def render_service_account(member: pb.Member) -> Json:
    """A service account of a project in OpenAI's shape."""
    return {
        "id": member.user_id,
        "object": "organization.project.service_account",
        "name": title(member, member.user_id),
        "role": role_of(member),
        "created_at": member.created_at,
    }


def render_user(member: pb.Member) -> Json:
    """A member of the organization in OpenAI's shape."""
    return {
        "id": member.user_id,
        "object": "organization.user",
        "name": title(member, member.user_id),
        "email": member.email or None,
        "role": role_of(member),
        "added_at": member.created_at,
        "is_service_account": member.kind == pb.MEMBER_KIND_SERVICE_ACCOUNT,
    }
