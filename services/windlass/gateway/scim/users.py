"""Users of SCIM."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import grpc
from scim2_models import Context, Meta, ResponseParameters, SearchRequest

from windlass.api.users.v1 import directory_pb2 as pb
from windlass.api.users.v1 import directory_pb2_grpc as rpc
from windlass.core.errors import from_rpc
from windlass.gateway.scim.filters import contract_filter, sort_name
from windlass.gateway.scim.patching import expanded
from windlass.gateway.scim.requests import TRIES, Json, ScimAnswer, ScimRequest, tag_of
from windlass.gateway.scim.resources import (
    POLICY,
    ScimUser,
    UserEmail,
    UserName,
    UserPatch,
)
from windlass.gateway.scim.searching import Window, shown_of

_SHOWN = ResponseParameters[ScimUser]


class ScimUsers:
    """Users at their endpoint."""

    def __init__(self, directory: rpc.DirectoryServiceAsyncStub):
        self._directory = directory

    async def create(self, request: ScimRequest, base: str) -> ScimAnswer:
        """A new user."""
        with POLICY:
            user = ScimUser.model_validate(request.body, scim_ctx=Context.RESOURCE_CREATION_REQUEST)
        if user.active is None:
            user.active = True
        shown = shown_of(_SHOWN, request.query)
        created = await self._directory.CreatePerson(pb.CreatePersonRequest(profile=_profile(user)))
        return _answer(201, created, shown, base)

    async def get(self, request: ScimRequest, base: str, resource_id: str) -> ScimAnswer:
        """Reads one user."""
        shown = shown_of(_SHOWN, request.query)
        person = await self._directory.GetPerson(pb.GetPersonRequest(id=resource_id))
        if request.has(person.version):
            return ScimAnswer(304, tag=tag_of(person.version))
        return _answer(200, person, shown, base)

    async def search(
        self, search: SearchRequest[Any], part: Window, base: str
    ) -> tuple[list[Json], int]:
        """Users who match, and how many there are."""
        wanted = pb.FindPeopleRequest(start_index=part.start, count=part.count)
        if search.filter is not None:
            wanted.filter.CopyFrom(contract_filter(search.filter, ScimUser))
        if search.sort_by is not None:
            wanted.sort_by = sort_name(search.sort_by, ScimUser)
            wanted.descending = search.sort_order == SearchRequest.SortOrder.descending
        found = await self._directory.FindPeople(wanted)
        return [_rendered(one, search, base) for one in found.people], found.total

    async def replace(self, request: ScimRequest, base: str, resource_id: str) -> ScimAnswer:
        """Sets everything that is said of a user."""
        with POLICY:
            user = ScimUser.model_validate(
                request.body, scim_ctx=Context.RESOURCE_REPLACEMENT_REQUEST
            )

        def replaced(person: pb.Person) -> ScimUser:
            if user.active is not None:
                return user
            # Nobody who was deactivated comes back because a body does not mention it.
            return user.model_copy(update={"active": _user(person, base).active})

        return await self._change(request, base, resource_id, replaced)

    async def patch(self, request: ScimRequest, base: str, resource_id: str) -> ScimAnswer:
        """Changes a part of what is said of a user, as it stands."""
        with POLICY:
            patch = UserPatch.model_validate(
                expanded(request.body), scim_ctx=Context.RESOURCE_PATCH_REQUEST
            )

        def patched(person: pb.Person) -> ScimUser:
            user = _user(person, base)
            with POLICY:
                patch.patch(user)
            return user

        return await self._change(request, base, resource_id, patched)

    async def delete(self, request: ScimRequest, resource_id: str) -> ScimAnswer:
        """Removes a user."""
        await self._directory.DeletePerson(
            pb.DeletePersonRequest(id=resource_id, version=request.version())
        )
        return ScimAnswer(204)

    async def _change(
        self,
        request: ScimRequest,
        base: str,
        resource_id: str,
        change: Callable[[pb.Person], ScimUser],
    ) -> ScimAnswer:
        """Changes a user as it stands, anew where somebody else does meanwhile."""
        wanted, shown = request.version(), shown_of(_SHOWN, request.query)
        for attempt in range(TRIES):
            person = await self._directory.GetPerson(pb.GetPersonRequest(id=resource_id))
            changed = pb.ReplacePersonRequest(
                id=resource_id,
                profile=_profile(change(person)),
                version=person.version if wanted is None else wanted,
            )
            try:
                replaced = await self._directory.ReplacePerson(changed)
            except grpc.aio.AioRpcError as error:
                is_late = from_rpc(error).reason == "version_mismatch"
                if not is_late or wanted is not None or attempt == TRIES - 1:
                    raise
            else:
                return _answer(200, replaced, shown, base)
        raise AssertionError("the last try raises or answers")


def location(base: str, endpoint: str, resource: pb.Person | pb.DirectoryGroup) -> str:
    """The address of a resource."""
    return address(base, endpoint, resource.id)


def address(base: str, endpoint: str, resource_id: str) -> str:
    """The address of a resource by its id."""
    return f"{base}/{endpoint}/{quote(resource_id, safe='@:+')}"


def meta(kind: str, base: str, resource: pb.Person | pb.DirectoryGroup) -> Meta:
    """Metadata that RFC 7643 wants of every resource."""
    return Meta(
        resource_type=kind,
        location=location(base, f"{kind}s", resource),
        version=tag_of(resource.version),
        created=datetime.fromtimestamp(resource.created_at, UTC),
        last_modified=datetime.fromtimestamp(resource.updated_at, UTC),
    )


def _answer(
    status: int, person: pb.Person, shown: ResponseParameters[Any], base: str
) -> ScimAnswer:
    content = _rendered(person, shown, base)
    return ScimAnswer(status, content, tag_of(person.version), location(base, "Users", person))


def _rendered(person: pb.Person, shown: ResponseParameters[Any], base: str) -> Json:
    user = _user(person, base)
    return user.model_dump(scim_ctx=Context.RESOURCE_QUERY_RESPONSE, response_parameters=shown)


def _user(person: pb.Person, base: str) -> ScimUser:
    said = person.profile
    name = None
    if said.HasField("name"):
        name = UserName(
            formatted=said.name.formatted or None,
            family_name=said.name.family_name or None,
            given_name=said.name.given_name or None,
        )
    return ScimUser(
        id=person.id,
        external_id=said.external_id or None,
        meta=meta("User", base, person),
        user_name=said.user_name,
        name=name,
        display_name=said.display_name or None,
        emails=[
            UserEmail(
                value=one.value,
                type=one.type or None,
                primary=one.primary if one.HasField("primary") else None,
            )
            for one in said.emails
        ]
        or None,
        active=said.active if said.HasField("active") else None,
    )


def _profile(user: ScimUser) -> pb.PersonProfile:
    """Profile of a user."""
    name = user.name or UserName()
    return pb.PersonProfile(
        user_name=user.user_name or "",
        external_id=user.external_id or "",
        display_name=user.display_name or "",
        name=pb.PersonName(
            formatted=name.formatted or "",
            family_name=name.family_name or "",
            given_name=name.given_name or "",
        ),
        emails=[
            pb.PersonEmail(value=one.value or "", type=one.type or "", primary=one.primary)
            for one in user.emails or ()
        ],
        active=user.active,
    )
