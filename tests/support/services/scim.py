"""A front whose organization a directory provisions, and the directory's key."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from tests.support.services.front import Front, running_front
from tests.support.services.member_keys import Key

SCOPES = ["directory.read", "directory.write"]
OF_A_PATCH = "urn:ietf:params:scim:api:messages:2.0:PatchOp"
OF_A_USER = "urn:ietf:params:scim:schemas:core:2.0:User"
OF_A_GROUP = "urn:ietf:params:scim:schemas:core:2.0:Group"


@dataclass
class Scim:
    """A directory at the front."""

    front: Front
    owner: Key
    key: Key

    async def ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        return await self.key.ask(method, f"/scim/v2{path}", **options)

    async def done(self, method: str, path: str, body: Any = None, **options: Any) -> Any:
        """What an answer holds that is no error."""
        if body is not None:
            options["json"] = body
        answer = await self.ask(method, path, **options)
        assert answer.status_code < 300, answer.text
        return answer.json() if answer.content else None

    async def refused(self, method: str, path: str, body: Any = None, **options: Any) -> Any:
        """The error of SCIM's shape that an answer is."""
        if body is not None:
            options["json"] = body
        answer = await self.ask(method, path, **options)
        error = answer.json()
        assert answer.headers["content-type"] == "application/scim+json"
        assert error["schemas"] == ["urn:ietf:params:scim:api:messages:2.0:Error"], error
        assert error["status"] == str(answer.status_code)
        return error

    async def user(self, user_name: str, **said: Any) -> Any:
        body = {"schemas": [OF_A_USER], "userName": user_name, **said}
        return await self.done("POST", "/Users", body)

    async def group(self, name: str, *user_ids: str) -> Any:
        members = [{"value": one} for one in user_ids]
        body = {"schemas": [OF_A_GROUP], "displayName": name, "members": members}
        return await self.done("POST", "/Groups", body)

    async def patch(self, path: str, *operations: Any, **options: Any) -> Any:
        body = {"schemas": [OF_A_PATCH], "Operations": list(operations)}
        return await self.done("PATCH", path, body, **options)

    async def active(self, user_id: str, *, so: bool) -> Any:
        return await self.patch(
            f"/Users/{user_id}", {"op": "replace", "path": "active", "value": so}
        )


async def directory_of(owner: Key, role: str | None = "organization_reader") -> Scim:
    """The directory of the organization of an owner."""
    enabled = await owner.ask("PUT", "/v1/organization/directory", json={"role": role})
    assert enabled.status_code == 200, enabled.text
    mine = (await owner.ask("GET", "/v1/me")).json()["principal"]["roles"][0]
    key = await owner.make(mine, scopes=SCOPES)
    return Scim(owner.front, owner, key)


@asynccontextmanager
async def running_directory(database_url: str, data: Path) -> AsyncIterator[Scim]:
    async with running_front(database_url, data) as front:
        yield await directory_of(Key(front, "", front.owner_key, {}))
