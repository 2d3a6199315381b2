"""The servicer of groups."""

from functools import partial
from typing import Any

from windlass.api.users.v1 import groups_pb2 as pb
from windlass.api.users.v1 import groups_pb2_grpc as rpc
from windlass.core.clock import now_seconds
from windlass.core.db.paging import cut, page_size
from windlass.core.db.wake import Wake
from windlass.core.errors import InvalidArgument
from windlass.core.ids import new_id
from windlass.core.rpc.auth import current
from windlass.users.domain import KEYS_TOPIC, valid_title, valid_user
from windlass.users.groups.projects import ProjectGroup, ProjectGroups
from windlass.users.groups.store import GroupMember, GroupStore, MemberGroup
from windlass.users.roles.domain import require_power
from windlass.users.roster import Roster


class GroupsServicer(rpc.GroupsServiceServicer):
    """GroupsService."""

    def __init__(self, groups: GroupStore, projects: ProjectGroups, roster: Roster, wake: Wake):
        self._groups = groups
        self._projects = projects
        self._roster = roster
        self._wake = wake

    async def CreateGroup(self, request: pb.CreateGroupRequest, context: Any) -> pb.Group:
        """A new group of the caller's organization."""
        name = valid_title(request.name, "name")
        group = MemberGroup(new_id("group_"), current().organization_id, name, now_seconds())
        return _group(await self._groups.create(group))

    async def GetGroup(self, request: pb.GetGroupRequest, context: Any) -> pb.Group:
        """Returns one group."""
        return _group(await self._groups.get(current().organization_id, request.group_id))

    async def ListGroups(
        self, request: pb.ListGroupsRequest, context: Any
    ) -> pb.ListGroupsResponse:
        """Groups of the organization, by their creation."""
        size = page_size(request.limit)
        rows = await self._groups.list(
            current().organization_id,
            oldest_first=request.oldest_first,
            after=request.after,
            limit=size + 1,
        )
        page, more = cut(rows, size)
        return pb.ListGroupsResponse(groups=map(_group, page), has_more=more)

    async def UpdateGroup(self, request: pb.UpdateGroupRequest, context: Any) -> pb.Group:
        """Changes a group's name."""
        name = valid_title(request.name, "name")
        return _group(await self._groups.rename(current().organization_id, request.group_id, name))

    async def DeleteGroup(
        self, request: pb.DeleteGroupRequest, context: Any
    ) -> pb.DeleteGroupResponse:
        """Removes a group, and takes its roles from all who are in it."""
        principal = current()
        await self._groups.delete(
            principal.organization_id, request.group_id, partial(require_power, principal)
        )
        self._wake.touch(KEYS_TOPIC)
        return pb.DeleteGroupResponse()

    async def AddToGroup(self, request: pb.AddToGroupRequest, context: Any) -> pb.GroupMember:
        """Adds a member to a group; idempotent."""
        principal = current()
        added = await self._groups.add(
            principal.organization_id,
            request.group_id,
            valid_user(request.user_id),
            partial(require_power, principal),
        )
        self._wake.touch(KEYS_TOPIC)
        return _member(added)

    async def RemoveFromGroup(
        self, request: pb.RemoveFromGroupRequest, context: Any
    ) -> pb.RemoveFromGroupResponse:
        """Takes a member out of a group."""
        principal = current()
        await self._groups.remove(
            principal.organization_id,
            request.group_id,
            request.user_id,
            partial(require_power, principal),
        )
        self._wake.touch(KEYS_TOPIC)
        return pb.RemoveFromGroupResponse()

    async def ListGroupMembers(
        self, request: pb.ListGroupMembersRequest, context: Any
    ) -> pb.ListGroupMembersResponse:
        """Lists who is in a group, by their ids."""
        size = page_size(request.limit)
        group = await self._groups.get(current().organization_id, request.group_id)
        rows = await self._groups.members(
            group,
            user_id=request.user_id,
            descending=request.descending,
            after=request.after,
            limit=size + 1,
        )
        page, more = cut(rows, size)
        return pb.ListGroupMembersResponse(members=map(_member, page), has_more=more)

    async def ListProjectGroups(
        self, request: pb.ListProjectGroupsRequest, context: Any
    ) -> pb.ListProjectGroupsResponse:
        """Lists groups that were given roles in a project."""
        principal, size = current(), page_size(request.limit)
        rows = await self._projects.list(
            principal.organization_id,
            await self._roster.seen_scope(principal, _named(request.project_id)),
            group_id=request.group_id,
            descending=request.descending,
            after=request.after,
            limit=size + 1,
        )
        page, more = cut(rows, size)
        return pb.ListProjectGroupsResponse(groups=map(_project_group, page), has_more=more)

    async def RemoveProjectGroup(
        self, request: pb.RemoveProjectGroupRequest, context: Any
    ) -> pb.RemoveProjectGroupResponse:
        """Takes all its roles in a project from a group."""
        principal = current()
        await self._projects.remove(
            principal.organization_id,
            await self._roster.scope(principal, _named(request.project_id)),
            request.group_id,
            partial(require_power, principal),
        )
        self._wake.touch(KEYS_TOPIC)
        return pb.RemoveProjectGroupResponse()


def _named(project_id: str) -> str:
    if not project_id:
        raise InvalidArgument("Name a project.", param="project_id")
    return project_id


def _project_group(given: ProjectGroup) -> pb.ProjectGroup:
    return pb.ProjectGroup(
        group=_group(given.group), project_id=given.project_id, added_at=given.added_at
    )


def _group(group: MemberGroup) -> pb.Group:
    return pb.Group(
        id=group.id,
        organization_id=group.organization_id,
        name=group.name,
        created_at=group.created_at,
        managed=bool(group.managed_at),
    )


def _member(member: GroupMember) -> pb.GroupMember:
    return pb.GroupMember(
        group_id=member.group_id, user_id=member.user_id, added_at=member.added_at
    )
