"""Groups of SCIM."""

from typing import Any

from scim2_models import Context, ResponseParameters, SearchRequest

from windlass.api.users.v1 import directory_pb2 as pb
from windlass.api.users.v1 import directory_pb2_grpc as rpc
from windlass.bounds import MAX_MEMBERS_PAGE
from windlass.gateway.scim.filters import contract_filter, sort_name
from windlass.gateway.scim.patching import GroupEdit, patched, whole
from windlass.gateway.scim.requests import Json, ScimAnswer, ScimRequest, tag_of
from windlass.gateway.scim.resources import ScimGroup
from windlass.gateway.scim.searching import Window, shown_of, shows
from windlass.gateway.scim.users import address, location, meta

_SHOWN = ResponseParameters[ScimGroup]
# Of the groups in one answer, after which it shows no other group.
MOST_MEMBERS = 20_000


class ScimGroups:
    """Groups at their endpoint."""

    def __init__(self, directory: rpc.DirectoryServiceAsyncStub):
        self._directory = directory

    async def create(self, request: ScimRequest, base: str) -> ScimAnswer:
        """A new group."""
        edit, shown = whole(request.body), shown_of(_SHOWN, request.query)
        created = await self._directory.CreateDirectoryGroup(
            pb.CreateDirectoryGroupRequest(
                name=edit.name or "", external_id=edit.external_id or "", user_ids=sorted(edit.add)
            )
        )
        return await self._answer(201, created, shown, base)

    async def get(self, request: ScimRequest, base: str, resource_id: str) -> ScimAnswer:
        """Reads one group."""
        shown = shown_of(_SHOWN, request.query)
        group = await self._directory.GetDirectoryGroup(pb.GetDirectoryGroupRequest(id=resource_id))
        if request.has(group.version):
            return ScimAnswer(304, tag=tag_of(group.version))
        return await self._answer(200, group, shown, base)

    async def search(
        self, search: SearchRequest[Any], part: Window, base: str
    ) -> tuple[list[Json], int]:
        """Groups that match, as many as their members let in, and how many there are."""
        wanted = pb.FindDirectoryGroupsRequest(start_index=part.start, count=part.count)
        if search.filter is not None:
            wanted.filter.CopyFrom(contract_filter(search.filter, ScimGroup))
        if search.sort_by is not None:
            wanted.sort_by = sort_name(search.sort_by, ScimGroup)
            wanted.descending = search.sort_order == SearchRequest.SortOrder.descending
        found = await self._directory.FindDirectoryGroups(wanted)
        rendered: list[Json] = []
        members = 0
        for group in found.groups:
            rendered.append(await self._rendered(group, search, base))
            members += len(rendered[-1].get("members", ()))
            if members > MOST_MEMBERS:
                break
        return rendered, found.total

    async def replace(self, request: ScimRequest, base: str, resource_id: str) -> ScimAnswer:
        """Sets everything that is said of a group."""
        return await self._change(request, base, resource_id, whole(request.body))

    async def patch(self, request: ScimRequest, base: str, resource_id: str) -> ScimAnswer:
        """Changes a part of what is said of a group."""
        return await self._change(request, base, resource_id, patched(request.body))

    async def delete(self, request: ScimRequest, resource_id: str) -> ScimAnswer:
        """Removes a group."""
        await self._directory.DeleteDirectoryGroup(
            pb.DeleteDirectoryGroupRequest(id=resource_id, version=request.version())
        )
        return ScimAnswer(204)

    async def _change(
        self, request: ScimRequest, base: str, resource_id: str, edit: GroupEdit
    ) -> ScimAnswer:
        shown = shown_of(_SHOWN, request.query)
        changed = await self._directory.ChangeDirectoryGroup(
            pb.ChangeDirectoryGroupRequest(
                id=resource_id,
                name=edit.name,
                external_id=edit.external_id,
                replace=edit.replaces,
                add=sorted(edit.add),
                remove=sorted(edit.remove),
                version=request.version(),
            )
        )
        return await self._answer(200, changed, shown, base)

    async def _answer(
        self, status: int, group: pb.DirectoryGroup, shown: ResponseParameters[Any], base: str
    ) -> ScimAnswer:
        content = await self._rendered(group, shown, base)
        return ScimAnswer(status, content, tag_of(group.version), location(base, "Groups", group))

    async def _rendered(
        self, group: pb.DirectoryGroup, shown: ResponseParameters[Any], base: str
    ) -> Json:
        """A group; its members, of whom there may be many, by no model of them."""
        resource = ScimGroup(
            id=group.id,
            external_id=group.external_id or None,
            meta=meta("Group", base, group),
            display_name=group.name,
        )
        fields = resource.model_dump(
            scim_ctx=Context.RESOURCE_QUERY_RESPONSE, response_parameters=shown
        )
        if shows(shown, "members"):
            people = await self._members(group.id)
            fields["members"] = [
                {"value": one, "$ref": address(base, "Users", one), "type": "User"}
                for one in people
            ]
            if not people:
                del fields["members"]
        return fields

    async def _members(self, group_id: str) -> list[str]:
        found: list[str] = []
        while True:
            page = await self._directory.ListDirectoryMembers(
                pb.ListDirectoryMembersRequest(
                    group_id=group_id, after=found[-1] if found else "", limit=MAX_MEMBERS_PAGE
                )
            )
            found += page.user_ids
            if not page.has_more:
                return found
