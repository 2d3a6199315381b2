"""Lists of more than a page, and names that are looked up: through the front door."""

from collections.abc import AsyncIterator
from pathlib import Path

import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam
from tests.support.services.front import Front, running_engine, running_front
from tests.support.waiting import until

HI: list[ChatCompletionMessageParam] = [{"role": "user", "content": "hi"}]


@pytest.fixture
async def front(database_url: str, tmp_path: Path) -> AsyncIterator[Front]:
    async with running_front(database_url, tmp_path / "data") as front:
        yield front


async def test_models_come_in_pages_newest_first_and_hide_each_other(front: Front) -> None:
    async with front.http() as http:
        project = (await http.get("/v1/me")).json()["project"]["id"]
        for name in "abcdef":
            front.board.pin(name)
        for name in "bdx":
            front.board.pin(name, project_id=project)
            front.board.pin(name, project_id="proj_other")
        front.board.pin("foreign", project_id="proj_other")
        seen, after = [], ""
        while True:
            answer = await http.get("/v1/models", params={"limit": 2, "after": after})
            page = answer.raise_for_status().json()
            seen += page["data"]
            assert len(page["data"]) <= 2
            if not page["has_more"]:
                break
            after = page["last_id"]
        assert [one["id"] for one in seen] == list("xdbfeca")
        own = {one["id"] for one in seen if one["windlass"]["project_id"] == project}
        assert own == set("bdx")
        assert (await http.get("/v1/models", params={"limit": 501})).status_code == 400
        unknown = await http.get("/v1/models", params={"after": "foreign"})
        assert unknown.json()["error"]["param"] == "after"
    # openai-python knows of no cursor here: it gives the first page, and stops.
    listed = await front.openai().models.list()
    assert [one.id for one in listed.data] == list("xdbfeca")
    first = await front.openai().models.list(extra_query={"limit": 3})
    assert [one.id async for one in first] == list("xdb")
    # Whoever deletes what a list shows gets on with the list.
    front.board.unpin("c")
    beyond = await front.openai().models.list(extra_query={"after": "c"})
    assert [one.id for one in beyond.data] == ["a"]


async def test_a_name_that_comes_to_mean_another_is_looked_up_again(front: Front) -> None:
    """The cache is dropped by name; without that the global model would answer for ever."""
    async with front.http() as http, running_engine() as shared, running_engine() as own:
        project = (await http.get("/v1/me")).json()["project"]["id"]
        front.board.pin("toy", shared.address)
        client = front.openai()
        await client.chat.completions.create(model="toy", messages=HI)
        front.board.pin("toy", own.address, project_id=project)
        while not own.requests:
            await client.chat.completions.create(model="toy", messages=HI)
        front.board.unpin("toy", project)
        before = len(shared.requests)
        while len(shared.requests) == before:
            await client.chat.completions.create(model="toy", messages=HI)
        front.board.unpin("toy")
        gone = False
        while not gone:
            try:
                await client.chat.completions.create(model="toy", messages=HI)
            except openai.NotFoundError:
                gone = True


async def test_a_gateway_whose_routes_are_silent_serves_on_and_is_not_ready(front: Front) -> None:
    async with front.http() as http, running_engine() as engine:
        front.board.pin("toy", engine.address)
        await front.openai().chat.completions.create(model="toy", messages=HI)
        front.board.silent = True
        answer = await until(lambda: http.get("/readyz"), holds=lambda got: got.is_error)
        assert answer.json() == {"status": "not ready"}
        assert (await front.app.readiness())["gateway.routes"] != "ok"
        await front.openai().chat.completions.create(model="toy", messages=HI)
        front.board.silent = False
        await until(lambda: http.get("/readyz"), holds=lambda got: got.is_success)
