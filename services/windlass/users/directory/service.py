"""The servicer of directories."""

from functools import partial
from typing import Any

from windlass.api.users.v1 import directory_pb2 as pb
from windlass.api.users.v1 import directory_pb2_grpc as rpc
from windlass.bounds import MAX_DIRECTORY_PAGE, MAX_GROUP_MEMBERS, MAX_MEMBERS_PAGE
from windlass.core.clock import now_seconds
from windlass.core.db.paging import cut
from windlass.core.db.wake import Wake
from windlass.core.errors import InvalidArgument
from windlass.core.ids import new_id
from windlass.core.rpc import audited
from windlass.core.rpc.auth import current
from windlass.policy import OWNER_ROLES
from windlass.users.directory import messages
from windlass.users.directory.domain import require_directory_power, valid_profile, valid_text
from windlass.users.directory.groups import DirectoryGroupStore, GroupChange
from windlass.users.directory.people import PeopleStore
from windlass.users.directory.settings import DirectoryStore
from windlass.users.domain import (
    KEYS_TOPIC,
    require_grant,
    require_scope,
    role_name,
    valid_title,
)
from windlass.users.groups.store import MemberGroup

# RFC 7644: a list begins with 1.
_FARTHEST = 2**31 - 1


class DirectoryServicer(rpc.DirectoryServiceServicer):
    """DirectoryService."""

    def __init__(
        self,
        directories: DirectoryStore,
        people: PeopleStore,
        groups: DirectoryGroupStore,
        wake: Wake,
    ):
        self._directories = directories
        self._people = people
        self._groups = groups
        self._wake = wake

    async def GetDirectory(self, request: pb.GetDirectoryRequest, context: Any) -> pb.Directory:
        """Returns whether a directory provisions the organization, and with what."""
        return messages.directory(await self._directories.get(current().organization_id))

    async def PutDirectory(self, request: pb.PutDirectoryRequest, context: Any) -> pb.Directory:
        """Lets a directory provision the organization."""
        principal, role = current(), ""
        if request.role:
            role = role_name(request.role)
            require_scope(role, "")
            require_grant(principal, role)
            if role in OWNER_ROLES:
                raise InvalidArgument("A directory makes no owners.", param="role")
        settings = await self._directories.put(principal.organization_id, role)
        return messages.directory(settings)

    async def DeleteDirectory(
        self, request: pb.DeleteDirectoryRequest, context: Any
    ) -> pb.DeleteDirectoryResponse:
        """Ends that; idempotent."""
        await self._directories.delete(current().organization_id)
        return pb.DeleteDirectoryResponse()

    async def CreatePerson(self, request: pb.CreatePersonRequest, context: Any) -> pb.Person:
        """A new person."""
        profile = valid_profile(messages.profile_of(request.profile))
        person = await self._people.create(current(), profile)
        audited.also([person.id])
        return messages.person(person)

    async def GetPerson(self, request: pb.GetPersonRequest, context: Any) -> pb.Person:
        """Returns one person."""
        return messages.person(await self._people.get(current().organization_id, request.id))

    async def FindPeople(
        self, request: pb.FindPeopleRequest, context: Any
    ) -> pb.FindPeopleResponse:
        """People who match, from an index on."""
        offset, limit = _window(request.start_index, request.count)
        people, total = await self._people.list(
            current().organization_id, request, offset=offset, limit=limit
        )
        return pb.FindPeopleResponse(people=map(messages.person, people), total=total)

    async def ReplacePerson(self, request: pb.ReplacePersonRequest, context: Any) -> pb.Person:
        """Sets what is said of a person; ends the credentials of one who becomes inactive."""
        profile = valid_profile(messages.profile_of(request.profile))
        version = request.version if request.HasField("version") else None
        person, ended = await self._people.replace(current(), request.id, profile, version=version)
        self._wake.touch(KEYS_TOPIC)
        audited.also(ended)
        return messages.person(person)

    async def DeletePerson(
        self, request: pb.DeletePersonRequest, context: Any
    ) -> pb.DeletePersonResponse:
        """Removes a person from the organization, with the credentials there."""
        version = request.version if request.HasField("version") else None
        ended = await self._people.delete(current(), request.id, version=version)
        self._wake.touch(KEYS_TOPIC)
        audited.also(ended)
        return pb.DeletePersonResponse()

    async def CreateDirectoryGroup(
        self, request: pb.CreateDirectoryGroupRequest, context: Any
    ) -> pb.DirectoryGroup:
        """A new group, which has no roles yet."""
        now = now_seconds()
        group = MemberGroup(
            new_id("group_"),
            current().organization_id,
            valid_title(request.name, "display_name"),
            now,
            managed_at=now,
            external_id=_external_id(request.external_id),
            version=1,
            updated_at=now,
        )
        created = await self._groups.create(group, _bounded(request.user_ids))
        audited.also([created.id])
        return messages.group(created)

    async def GetDirectoryGroup(
        self, request: pb.GetDirectoryGroupRequest, context: Any
    ) -> pb.DirectoryGroup:
        """Returns one group."""
        return messages.group(await self._groups.get(current().organization_id, request.id))

    async def FindDirectoryGroups(
        self, request: pb.FindDirectoryGroupsRequest, context: Any
    ) -> pb.FindDirectoryGroupsResponse:
        """Groups that match, from an index on."""
        offset, limit = _window(request.start_index, request.count)
        groups, total = await self._groups.list(
            current().organization_id, request, offset=offset, limit=limit
        )
        return pb.FindDirectoryGroupsResponse(groups=map(messages.group, groups), total=total)

    async def ListDirectoryMembers(
        self, request: pb.ListDirectoryMembersRequest, context: Any
    ) -> pb.ListDirectoryMembersResponse:
        """People of a group, by their ids."""
        size = min(request.limit, MAX_MEMBERS_PAGE) if request.limit > 0 else MAX_MEMBERS_PAGE
        found = await self._groups.members(
            current().organization_id, request.group_id, after=request.after, limit=size + 1
        )
        page, more = cut(found, size)
        return pb.ListDirectoryMembersResponse(user_ids=page, has_more=more)

    async def ChangeDirectoryGroup(
        self, request: pb.ChangeDirectoryGroupRequest, context: Any
    ) -> pb.DirectoryGroup:
        """Changes a group and who is in it; those follow within a second."""
        principal = current()
        external_id = request.external_id if request.HasField("external_id") else None
        change = GroupChange(
            valid_title(request.name, "display_name") if request.HasField("name") else None,
            _external_id(external_id) if external_id is not None else None,
            request.replace,
            _bounded(request.add),
            _bounded(request.remove),
        )
        changed = await self._groups.change(
            principal.organization_id,
            request.id,
            change,
            partial(require_directory_power, principal),
            version=request.version if request.HasField("version") else None,
        )
        self._wake.touch(KEYS_TOPIC)
        return messages.group(changed)

    async def DeleteDirectoryGroup(
        self, request: pb.DeleteDirectoryGroupRequest, context: Any
    ) -> pb.DeleteDirectoryGroupResponse:
        """Removes a group, and takes its roles from all who are in it."""
        principal = current()
        await self._groups.delete(
            principal.organization_id,
            request.id,
            partial(require_directory_power, principal),
            version=request.version if request.HasField("version") else None,
        )
        self._wake.touch(KEYS_TOPIC)
        return pb.DeleteDirectoryGroupResponse()


def _window(start_index: int, count: int) -> tuple[int, int]:
    """Returns how many to skip, and how many to show at most."""
    return min(max(start_index, 1), _FARTHEST) - 1, min(max(count, 0), MAX_DIRECTORY_PAGE)


def _external_id(text: str) -> str:
    return valid_text(text, "external_id") if text else ""


def _bounded(user_ids: Any) -> frozenset[str]:
    found = frozenset(user_ids)
    if len(found) > MAX_GROUP_MEMBERS:
        raise InvalidArgument(f"A group has at most {MAX_GROUP_MEMBERS} members.", param="members")
    return found
