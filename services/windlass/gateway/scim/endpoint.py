"""Every endpoint of SCIM: what a request asks for, and its answer."""

from collections.abc import Awaitable, Callable
from urllib.parse import unquote

from pydantic import ValidationError
from scim2_models import Error, SCIMException

from windlass.api.users.v1 import directory_pb2_grpc as rpc
from windlass.gateway.scim import discovery
from windlass.gateway.scim.bulk import run_bulk
from windlass.gateway.scim.errors import ScimError
from windlass.gateway.scim.groups import ScimGroups
from windlass.gateway.scim.requests import ScimAnswer, ScimRequest, listed
from windlass.gateway.scim.resources import AnySearch, GroupSearch, UserSearch
from windlass.gateway.scim.searching import Window, search_of, window
from windlass.gateway.scim.users import ScimUsers

Resources = ScimUsers | ScimGroups


class ScimEndpoint:
    """SCIM over the users service."""

    def __init__(self, directory: rpc.DirectoryServiceAsyncStub):
        self._users = ScimUsers(directory)
        self._groups = ScimGroups(directory)

    async def answer(self, request: ScimRequest, base: str) -> ScimAnswer:
        """The answer to a request; raises what `scim_error` takes."""
        try:
            return await self._dispatch(request, base)
        except ValidationError as error:
            found = Error.from_validation_errors(error)[0]
            raise ScimError(found.status or 400, found.detail or "", found.scim_type) from error
        except SCIMException as error:
            said = error.to_error()
            raise ScimError(said.status or 400, said.detail or "", said.scim_type) from error

    async def _dispatch(self, request: ScimRequest, base: str) -> ScimAnswer:
        parts = [unquote(part) for part in request.path.split("/")] if request.path else []
        if parts and parts[0] in discovery.ENDPOINTS:
            _require_method(request, "GET")
            return ScimAnswer(200, discovery.described(parts, base))
        if parts == ["Bulk"]:
            _require_method(request, "POST")
            content = await run_bulk(request.body, lambda one: self.answer(one, base), base)
            return ScimAnswer(200, content)
        if parts in ([], [".search"]):
            _require_method(request, "POST" if parts else "GET")
            return await self._search_all(request, base)
        kinds: dict[str, Resources] = {"Users": self._users, "Groups": self._groups}
        found = kinds.get(parts[0])
        if found is None or len(parts) > 2:
            raise ScimError(404, f"No SCIM endpoint {'/'.join(parts)[:200]!r}.")
        if len(parts) == 1 or parts[1] == ".search":
            return await self._of_all(found, request, base, search=len(parts) == 2)
        return await _of_one(found, request, base, parts[1])

    async def _of_all(
        self, resources: Resources, request: ScimRequest, base: str, *, search: bool
    ) -> ScimAnswer:
        _require_method(request, *(("POST",) if search else ("GET", "POST")))
        if request.method == "POST" and not search:
            return await resources.create(request, base)
        kind = UserSearch if resources is self._users else GroupSearch
        asked = search_of(kind, request.body if search else request.query)
        part = window(asked)
        found, total = await resources.search(asked, part, base)
        return ScimAnswer(200, listed(found, total, part.start))

    async def _search_all(self, request: ScimRequest, base: str) -> ScimAnswer:
        """Users, then groups."""
        asked = search_of(AnySearch, request.body if request.method == "POST" else request.query)
        if asked.filter is not None or asked.sort_by is not None:
            raise ScimError(501, "Users and groups are filtered and sorted apart.")
        part = window(asked)
        people, total = await self._users.search(asked, part, base)
        rest = Window(max(part.start - total, 1), part.count - len(people))
        groups, more = await self._groups.search(asked, rest, base)
        return ScimAnswer(200, listed([*people, *groups], total + more, part.start))


async def _of_one(
    resources: Resources, request: ScimRequest, base: str, resource_id: str
) -> ScimAnswer:
    if request.method == "DELETE":
        return await resources.delete(request, resource_id)
    ways: dict[str, Callable[[ScimRequest, str, str], Awaitable[ScimAnswer]]] = {
        "GET": resources.get,
        "PUT": resources.replace,
        "PATCH": resources.patch,
    }
    _require_method(request, *ways, "DELETE")
    return await ways[request.method](request, base, resource_id)


def _require_method(request: ScimRequest, *allowed: str) -> None:
    if request.method not in allowed:
        error = ScimError(405, f"{request.method} is not allowed here.")
        error.headers["allow"] = ", ".join(allowed)
        raise error
