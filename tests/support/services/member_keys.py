"""Keys of members, as those who hold them use them."""

import time
from dataclasses import dataclass
from typing import Any

import httpx
from tests.support.services.front import Front
from tests.support.waiting import until

# Within which a change of keys is effective everywhere.
SECONDS = 1.0


@dataclass
class Key:
    """Somebody's key."""

    front: Front
    id: str
    secret: str
    body: dict[str, Any]

    async def ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        async with self.front.http(self.secret) as http:
            return await http.request(method, path, **options)

    async def status(self) -> int:
        return (await self.ask("GET", "/v1/me")).status_code

    async def principal(self) -> dict[str, Any]:
        """Who the key is, and what it may."""
        answer = await self.ask("GET", "/v1/me")
        if answer.status_code == 403:
            # Cut by the change it asks about, which reached the gateway meanwhile.
            answer = await self.ask("GET", "/v1/me")
        found: dict[str, Any] = answer.json()["principal"]
        return found

    async def roles(self) -> list[str]:
        roles: list[str] = (await self.principal())["roles"]
        return roles

    async def permissions(self) -> set[str]:
        return set((await self.principal())["permissions"])

    async def make(self, role: str = "project_member", **body: Any) -> "Key":
        answer = await self.try_make(role, **body)
        assert answer.status_code == 200, answer.text
        return Key(self.front, answer.json()["id"], answer.json()["value"], answer.json())

    async def try_make(self, role: str = "project_member", **body: Any) -> httpx.Response:
        return await self.ask("POST", "/v1/api_keys", json={"name": role, "role": role, **body})

    async def put(self, user: str, role: str, **body: Any) -> httpx.Response:
        body = {"user_id": user, "role": role, **body}
        return await self.ask("PUT", "/v1/members", json=body)

    async def remove(self, user: str, **query: Any) -> httpx.Response:
        return await self.ask("DELETE", f"/v1/members/{user}", params=query)

    async def revoke(self, other: "Key") -> httpx.Response:
        return await self.ask("DELETE", f"/v1/api_keys/{other.id}")

    async def sees(self, **query: Any) -> set[str]:
        answer = await self.ask("GET", "/v1/api_keys", params={"limit": 100, **query})
        return {one["id"] for one in answer.json()["data"]}

    async def ends_within_a_second(self) -> str:
        """The reason of its refusal, which must come within a second from now."""
        answer = await until(
            lambda: self.ask("GET", "/v1/me"), SECONDS, holds=lambda got: got.status_code != 200
        )
        assert answer.status_code == 401
        return str(answer.json()["error"]["message"])


async def project(owner: Key) -> str:
    answer = await owner.ask("POST", "/v1/projects", json={"title": f"p{time.time_ns()}"})
    return str(answer.json()["id"])


async def organization(owner: Key, title: str) -> dict[str, str]:
    """The header that names a new organization."""
    answer = await owner.ask("POST", "/v1/organizations", json={"title": title})
    return {"OpenAI-Organization": str(answer.json()["id"])}


async def join(owner: Key, user: str, role: str, project_id: str = "", **body: Any) -> Key:
    """A new member and a first key."""
    answer = await owner.put(user, role, project_id=project_id, **body)
    assert answer.status_code == 200, answer.text
    return await owner.make(role, project_id=project_id, user_id=user)
