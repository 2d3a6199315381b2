"""openai-python's administration client, and a strict reading of what it gets."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

from openai import AsyncOpenAI, BaseModel
from openai.resources.admin.organization import AsyncOrganization
from tests.support.services.front import Front

M = TypeVar("M", bound=BaseModel)


@asynccontextmanager
async def administering(front: Front, key: str = "") -> AsyncIterator[AsyncOrganization]:
    """OpenAI's client with a key as its admin key; by default the owner's."""
    async with AsyncOpenAI(
        base_url=f"{front.url}/v1",
        api_key="none",
        admin_api_key=key or front.owner_key,
        max_retries=0,
    ) as client:
        yield client.admin.organization


async def foreign_key(front: Front) -> str:
    """A key of another organization's owner."""
    async with front.http() as http:
        made = (await http.post("/v1/organizations", json={"title": "Foreign"})).json()
    async with front.http(**{"OpenAI-Organization": made["id"]}) as http:
        member = {"user_id": "stranger", "role": "organization_owner"}
        (await http.put("/v1/members", json=member)).raise_for_status()
        body = {"name": "stranger", "role": "organization_owner", "user_id": "stranger"}
        return str((await http.post("/v1/api_keys", json=body)).json()["value"])


def strict(answer: M) -> M:
    """The answer, once it has every field of its type, each of that type, and no other."""
    fields = answer.to_dict(mode="python", use_api_names=True)
    type(answer).model_validate(fields, strict=True)
    _require_known(answer)
    return answer


def _require_known(answer: BaseModel) -> None:
    # The client counts a field under another name as one that it does not know.
    aliases = {field.alias for field in type(answer).model_fields.values()}
    unknown = set(answer.model_extra or ()) - aliases
    assert not unknown, f"{type(answer).__name__} has no {unknown}"
    for name in type(answer).model_fields:
        value = getattr(answer, name)
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, BaseModel):
                _require_known(one)
