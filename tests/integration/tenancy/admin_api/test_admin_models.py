"""Models of a project by openai-python, held to on every path that names a model."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from openai.resources.admin.organization import AsyncOrganization
from tests.support.clients.openai_admin import administering, foreign_key, strict
from tests.support.services.front import Engine, Front, begin, running_engine, running_front
from tests.support.services.member_keys import SECONDS, Key, join, project
from tests.support.waiting import soon, until

from windlass.inference_api.routes import ENGINE_ROUTES

CHAT = "/v1/chat/completions"
HI = [{"role": "user", "content": "hi"}]
BASE, TUNED, OTHER = "toy", "ft:toy:acme:pirate:1", "giant"
BODIES: dict[str, dict[str, Any]] = {
    CHAT: {"messages": HI},
    "/v1/completions": {"prompt": "a"},
    "/v1/embeddings": {"input": "a"},
    "/v1/rerank": {"query": "a", "documents": ["b"]},
    "/v1/score": {"text_1": "a", "text_2": "b"},
    "/tokenize": {"prompt": "a"},
}


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    async with running_engine() as engine:
        yield engine


@pytest.fixture
async def front(database_url: str, tmp_path: Path, engine: Engine) -> AsyncIterator[Front]:
    async with running_front(database_url, tmp_path / "data") as front:
        for model in (BASE, TUNED, OTHER):
            front.board.pin(model, engine.address)
        owner = Key(front, "", front.owner_key, {})
        await until(lambda: chat(owner, OTHER), holds=lambda got: got.status_code == 200)
        yield front


@pytest.fixture
async def owner(front: Front) -> Key:
    return Key(front, "", front.owner_key, {})


@pytest.fixture
async def admin(front: Front) -> AsyncIterator[AsyncOrganization]:
    async with administering(front) as client:
        yield client


async def chat(key: Key, model: str) -> httpx.Response:
    return await key.ask("POST", CHAT, json={"model": model, "messages": HI})


async def listed(key: Key) -> list[str]:
    return sorted(one["id"] for one in (await key.ask("GET", "/v1/models")).json()["data"])


async def sees(key: Key, *models: str) -> None:
    await until(lambda: listed(key), SECONDS, holds=lambda found: found == sorted(models))


def code(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, str(answer.json()["error"]["code"])


@pytest.fixture
async def room(owner: Key) -> str:
    return await project(owner)


@pytest.fixture
async def member(owner: Key, room: str) -> Key:
    return await join(owner, "ann", "project_owner", room)


async def test_lists_are_kept_and_removed(admin: AsyncOrganization, owner: Key) -> None:
    room = await project(owner)
    permissions = admin.projects.model_permissions
    none = strict(await permissions.retrieve(room))
    assert (none.mode, none.api_model_ids) == ("deny_list", [])
    made = strict(await permissions.update(room, mode="allow_list", model_ids=["b", "a"]))
    assert (made.mode, made.api_model_ids) == ("allow_list", ["a", "b"])
    assert strict(await permissions.retrieve(room)) == made
    for _ in range(2):
        assert strict(await permissions.delete(room)).deleted
    assert strict(await permissions.retrieve(room)) == none
    bad: list[tuple[Any, str]] = [
        ({"mode": "allow_list", "model_ids": ["*"]}, "model_ids"),
        ({"mode": "allow_list", "model_ids": ["!a"]}, "model_ids"),
        ({"mode": "maybe", "model_ids": []}, "mode"),
        ({"mode": "deny_list", "model_ids": [f"{n}" + "m" * 200 for n in range(12)]}, "model_ids"),
    ]
    for body, param in bad:
        with pytest.raises(openai.BadRequestError) as refused:
            await permissions.update(room, **body)
        assert refused.value.param == param


async def test_every_path_holds_to_them(admin: AsyncOrganization, member: Key, room: str) -> None:
    assert BODIES.keys() == ENGINE_ROUTES
    # Its own name decides for an adapter, and none is reached by its base.
    await admin.projects.model_permissions.update(room, mode="allow_list", model_ids=[TUNED])
    await sees(member, TUNED)
    for model in (OTHER, BASE, "nothing-of-this-name"):
        for path, body in BODIES.items():
            refused = await member.ask("POST", path, json={"model": model, **body})
            assert code(refused) == (404, "model_not_found"), path
        job = {"model": model, "training_file": "file-none"}
        refused = await member.ask("POST", "/v1/fine_tuning/jobs", json=job)
        assert code(refused) == (400, "model_not_found")
        refused = await member.ask("GET", f"/v1/models/{model}")
        assert code(refused) == (404, "model_not_found")
    assert (await chat(member, TUNED)).status_code == 200
    await admin.projects.model_permissions.update(room, mode="deny_list", model_ids=["ft:toy:*"])
    await sees(member, BASE, OTHER)
    assert (await chat(member, TUNED)).status_code == 404
    assert (await chat(member, BASE)).status_code == 200
    await admin.projects.model_permissions.update(room, mode="allow_list", model_ids=[])
    await sees(member)
    await admin.projects.model_permissions.delete(room)
    await sees(member, BASE, OTHER, TUNED)


async def test_who_sets_a_list_of_their_own_project_hears_so(
    admin: AsyncOrganization, owner: Key
) -> None:
    """The change is of the key as well that makes it, and cuts others of its requests alone."""
    mine = (await owner.ask("GET", "/v1/me")).json()["principal"]["project_id"]
    for number in range(8):
        models = [f"m{number}"]
        answer = await admin.projects.model_permissions.update(
            mine, mode="allow_list", model_ids=models
        )
        assert answer.api_model_ids == models
    assert (await admin.projects.model_permissions.delete(mine)).deleted


async def test_a_key_is_for_what_both_lists_admit(
    admin: AsyncOrganization, owner: Key, member: Key, room: str
) -> None:
    key = await member.make("project_member", models=["ft:*", BASE])
    permissions = admin.projects.model_permissions
    await permissions.update(room, mode="allow_list", model_ids=["ft:toy:*", OTHER])
    await sees(key, TUNED)
    await permissions.update(room, mode="deny_list", model_ids=["ft:*"])
    await sees(key, BASE)
    # Of another project, nothing is said.
    elsewhere = await join(owner, "bob", "project_member", await project(owner))
    assert (await chat(elsewhere, TUNED)).status_code == 200


async def test_an_answer_under_way_ends(
    admin: AsyncOrganization, member: Key, room: str, engine: Engine
) -> None:
    async def endless(request: Any, body: dict[str, Any]) -> Any:
        await begin(request)
        await asyncio.Event().wait()

    engine.handler = endless
    body = {"model": OTHER, "messages": HI, "stream": True}
    asking = asyncio.create_task(member.ask("POST", CHAT, json=body))
    await until(lambda: any(one.get("stream") for one in engine.requests))
    with_list = admin.projects.model_permissions.update(room, mode="deny_list", model_ids=[OTHER])
    # It may end what asks for it, whose key is for less then as well.
    await asyncio.gather(with_list, return_exceptions=True)
    async with soon(2):
        await engine.left.wait()
    await asyncio.wait([asking])


async def test_only_owners_of_the_organization_change_them(
    admin: AsyncOrganization, owner: Key
) -> None:
    room, other = await project(owner), await project(owner)
    boss = await join(owner, "boss", "project_owner", room)
    path = f"/v1/organization/projects/{room}/model_permissions"
    body = {"mode": "deny_list", "model_ids": []}
    assert (await boss.ask("GET", path)).status_code == 200
    for method in ("POST", "DELETE"):
        assert (await boss.ask(method, path, json=body)).status_code == 403
    assert (await boss.ask("GET", path.replace(room, other))).status_code == 404
    stranger = Key(owner.front, "", await foreign_key(owner.front), {})
    for method in ("GET", "POST", "DELETE"):
        said = {
            (answer.status_code, answer.text.replace(name, "…"))
            for name in (room, "proj_none")
            for answer in [await stranger.ask(method, path.replace(room, name), json=body)]
        }
        assert len(said) == 1
        assert next(iter(said))[0] == 404


async def test_settings_that_are_what_they_are(admin: AsyncOrganization, owner: Key) -> None:
    room = await project(owner)
    tools, kept = admin.projects.hosted_tool_permissions, admin.projects.data_retention
    none = strict(await tools.retrieve(room))
    assert not none.web_search.enabled
    assert strict(await tools.update(room, mcp={"enabled": False})) == none
    with pytest.raises(openai.BadRequestError) as refused:
        await tools.update(room, mcp={"enabled": True})
    assert (refused.value.param, refused.value.code) == ("mcp", "unsupported_parameter")
    assert strict(await admin.data_retention.retrieve()).type == "zero_data_retention"
    zero = await admin.data_retention.update(retention_type="zero_data_retention")
    assert strict(zero).type == "zero_data_retention"
    assert strict(await kept.retrieve(room)).type == "organization_default"
    for wanted in ("organization_default", "zero_data_retention"):
        # Answers that a request consents to have kept may be, for a feed.
        assert strict(await kept.update(room, retention_type="none")).type == "none"
        assert strict(await kept.retrieve(room)).type == "none"
        answer = await kept.update(room, retention_type=wanted)
        assert strict(answer).type == "organization_default"
        assert strict(await kept.retrieve(room)).type == "organization_default"
    with pytest.raises(openai.BadRequestError, match="keeps no prompts"):
        await kept.update(room, retention_type="modified_abuse_monitoring")
    with pytest.raises(openai.BadRequestError, match="keeps no prompts"):
        await admin.data_retention.update(retention_type="modified_abuse_monitoring")
    # That `store: true` is refused by every engine, its own tests say.
    ann = await join(owner, "ann", "project_member", room)
    path = f"/v1/organization/projects/{room}"
    for name, body in (
        ("hosted_tool_permissions", {}),
        ("data_retention", {"retention_type": "zero_data_retention"}),
    ):
        assert (await ann.ask("GET", f"{path}/{name}")).status_code == 200
        assert (await ann.ask("POST", f"{path}/{name}", json=body)).status_code == 403
        unknown = f"/v1/organization/projects/proj_none/{name}"
        assert (await owner.ask("GET", unknown)).status_code == 404
