"""/v1/organization/groups, and who is in them."""

from typing import Annotated

from pydantic import Field

from windlass.api.users.v1 import groups_pb2 as pb
from windlass.api.users.v1 import groups_pb2_grpc as rpc
from windlass.api.users.v1 import users_pb2, users_pb2_grpc
from windlass.bounds import TITLE_LENGTH
from windlass.core.app import App
from windlass.core.errors import NotFound
from windlass.gateway.openai.rendering import Json
from windlass.gateway.openai_admin import members
from windlass.gateway.openai_admin.roles.rendering import Order, page
from windlass.gateway.parameters import After, Body, Limit
from windlass.gateway.resource_router import ResourceRouter


class NamedGroup(Body):
    """A group by its name."""

    name: Annotated[str, Field(min_length=1, max_length=TITLE_LENGTH)]


class NewGroupMember(Body):
    """A member who joins a group."""

    user_id: Annotated[str, Field(min_length=1)]


def groups_router(app: App) -> ResourceRouter:
    """Groups of the organization."""
    router = ResourceRouter(prefix="/organization/groups", tags=["administration"])
    groups = app.clients.stub(rpc.GroupsServiceStub)

    @router.post("")
    async def create_group(body: NamedGroup) -> Json:
        """A new group."""
        return _render(await groups.CreateGroup(pb.CreateGroupRequest(name=body.name)))

    @router.get("")
    async def list_groups(after: After = "", limit: Limit = 0, order: Order = "asc") -> Json:
        """Groups, by their creation."""
        request = pb.ListGroupsRequest(after=after, limit=limit, oldest_first=order == "asc")
        answer = await groups.ListGroups(request)
        return page([_render(group) for group in answer.groups], answer.has_more)

    @router.get("/{group_id}")
    async def get_group(group_id: str) -> Json:
        """Returns one group."""
        return _render(await groups.GetGroup(pb.GetGroupRequest(group_id=group_id)))

    @router.post("/{group_id}")
    async def update_group(group_id: str, body: NamedGroup) -> Json:
        """Changes a group's name."""
        request = pb.UpdateGroupRequest(group_id=group_id, name=body.name)
        fields = _render(await groups.UpdateGroup(request))
        return {name: fields[name] for name in ("id", "name", "created_at", "is_scim_managed")}

    @router.delete("/{group_id}")
    async def delete_group(group_id: str) -> Json:
        """Deletes a group, and takes its roles from all who are in it."""
        await groups.DeleteGroup(pb.DeleteGroupRequest(group_id=group_id))
        return {"id": group_id, "object": "group.deleted", "deleted": True}

    _add_members(router, app, groups)
    return router


def _add_members(router: ResourceRouter, app: App, groups: rpc.GroupsServiceAsyncStub) -> None:
    users = app.clients.stub(users_pb2_grpc.UsersServiceStub)

    async def render(found: pb.ListGroupMembersResponse) -> list[Json]:
        # Of who is a member of a project alone, the id is all that is known here.
        known = await members.find(users, "", [one.user_id for one in found.members])
        return [
            {
                "id": one.user_id,
                "name": members.title(known.get(one.user_id), one.user_id),
                "email": members.email(known.get(one.user_id), one.user_id) or None,
            }
            for one in found.members
        ]

    @router.post("/{group_id}/users")
    async def add_group_user(group_id: str, body: NewGroupMember) -> Json:
        """Adds a member to a group."""
        request = pb.AddToGroupRequest(group_id=group_id, user_id=body.user_id)
        added = await groups.AddToGroup(request)
        return {"object": "group.user", "group_id": added.group_id, "user_id": added.user_id}

    @router.get("/{group_id}/users")
    async def list_group_users(
        group_id: str, after: After = "", limit: Limit = 0, order: Order = "asc"
    ) -> Json:
        """Members of a group, by their ids."""
        request = pb.ListGroupMembersRequest(
            group_id=group_id, after=after, limit=limit, descending=order == "desc"
        )
        answer = await groups.ListGroupMembers(request)
        return page(await render(answer), answer.has_more)

    @router.get("/{group_id}/users/{user_id}")
    async def get_group_user(group_id: str, user_id: str) -> Json:
        """Returns one member of a group."""
        request = pb.ListGroupMembersRequest(group_id=group_id, user_id=user_id, limit=1)
        answer = await groups.ListGroupMembers(request)
        if not answer.members:
            raise NotFound(f"No user {user_id!r} in this group.", param="user_id")
        known = (await members.find(users, "", [user_id])).get(user_id)
        is_account = known is not None and known.kind == users_pb2.MEMBER_KIND_SERVICE_ACCOUNT
        shown = (await render(answer))[0]
        return {**shown, "is_service_account": is_account, "picture": None, "user_type": "user"}

    @router.delete("/{group_id}/users/{user_id}")
    async def remove_group_user(group_id: str, user_id: str) -> Json:
        """Takes a member out of a group."""
        request = pb.RemoveFromGroupRequest(group_id=group_id, user_id=user_id)
        await groups.RemoveFromGroup(request)
        return {"object": "group.user.deleted", "deleted": True}


def _render(group: pb.Group) -> Json:
    return {
        "id": group.id,
        "name": group.name,
        "created_at": group.created_at,
        "group_type": "group",
        "is_scim_managed": group.managed,
    }
