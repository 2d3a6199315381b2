"""Losses that a session brings: checked when they come, used by name, and nobody else's."""

from typing import Any

import orjson
import pytest
from tests.integration.tuning.test_log import Client
from tests.integration.tuning.test_trained import another_project
from tests.support.factories.tenant_rpcs.of_tuning import LOSS
from tests.support.services.front import Front

DOCUMENT = orjson.loads(LOSS)


@pytest.fixture
async def client(front: Front) -> Any:
    async with front.http() as http:
        made = Client(http)
        await made.begin()
        yield made


def body(session: str, number: int = 0, **change: Any) -> Any:
    return {"session_id": session, "custom_loss_seq_id": number, "name": "sum"} | DOCUMENT | change


def computed(client: Client, seq_id: int, loss_id: str) -> dict[str, Any]:
    tokens = {"chunks": [{"type": "encoded_text", "tokens": [1, 2]}]}
    given = {
        "data": [{"model_input": tokens}], "loss_fn": "custom",
        "loss_fn_config": {"loss_id": loss_id},
    }  # fmt: skip
    return {"model_id": client.run, "seq_id": seq_id, "forward_backward_input": given}


async def test_a_loss_is_made_once_and_used_by_its_name(client: Client) -> None:
    future = await client.post("create_custom_loss", body(client.session))
    made = await client.result(future)
    assert (made["type"], made["loss_id"][:5]) == ("create_custom_loss", "loss-")
    assert await client.post("create_custom_loss", body(client.session)) == future
    other = body(client.session, name="other")
    assert (await client.post("create_custom_loss", other, 409))["code"] == "body_differs"
    asked = computed(client, 1, made["loss_id"])
    first = await client.post("forward_backward", asked)
    assert "error" not in await client.result(first)
    assert await client.post("forward_backward", asked) == first


async def test_a_loss_is_its_sessions_alone(front: Front, client: Client) -> None:
    future = await client.post("create_custom_loss", body(client.session))
    loss_id = (await client.result(future))["loss_id"]
    async with front.http() as http, front.http(await another_project(front)) as foreign:
        for other in (Client(http), Client(foreign)):
            await other.begin()
            unknown = await other.result(
                await other.post("forward_backward", computed(other, 1, loss_id))
            )
            assert unknown == {
                "error": f"The session has no loss {loss_id!r}.", "category": "user",
            }  # fmt: skip
            # It had its place.
            assert (await other.result(await other.step(2)))["metrics"]["step:max"] == 1.0
        await Client(foreign).post("create_custom_loss", body(client.session, 1), 404)


async def test_losses_end_with_their_session_and_are_bounded(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass.tuning.storage.losses.MAX_LOSSES", 1)
    await client.post("create_custom_loss", body(client.session))
    refused = await client.post("create_custom_loss", body(client.session, 1), 429)
    assert refused["code"] == "too_many_losses"
    await client.post(f"sessions/{client.session}/finish", {"reason": {"type": "success"}})
    await client.post("create_custom_loss", body(client.session, 2), 410)


def hostile(**node: Any) -> dict[str, Any]:
    nodes = [*DOCUMENT["graph"]["nodes"]]
    nodes[1] = nodes[1] | node
    return {"graph": {"format": 1, "nodes": nodes}}


@pytest.mark.parametrize(
    "change",
    [
        hostile(target="backward"),
        hostile(op="call_function", target="os.system"),
        hostile(op="call_module", target="net"),
        hostile(op="get_attr", target="weight"),
        hostile(args=[{"ref": "later"}]),
        hostile(args=[[[[[[[1]]]]]]]),
        hostile(kwargs={"out": {"ref": "logprobs"}}),
        {"graph": {"format": 1, "nodes": DOCUMENT["graph"]["nodes"] * 200}},
        {"graph": {"format": 2, "nodes": DOCUMENT["graph"]["nodes"]}},
        {"graph": {}},
        {"inputs": []},
        {"inputs": [{"name": "advantages", "rank": 1}]},
        {"inputs": [{"name": "logprobs", "rank": 9}]},
        {"name": "\n"},
        {"name": "x" * 300},
        {"custom_loss_seq_id": -1},
        {"custom_loss_seq_id": 2**40},
        {"graph": {"format": 1, "nodes": [], "x": "x" * 300_000}},
    ],
)
async def test_a_hostile_loss_is_refused(client: Client, change: dict[str, Any]) -> None:
    await client.post("create_custom_loss", body(client.session, **change), 400)


@pytest.mark.parametrize("value", ["[" * 300 + "]" * 300, "1" + "0" * 40])
async def test_json_that_no_reader_takes_is_refused(client: Client, value: str) -> None:
    def asked(**fields: Any) -> bytes:
        return orjson.dumps(fields).replace(b'"HERE"', value.encode())

    session = {"session_id": client.session}
    run = {"model_id": client.run, "seq_id": 1, "path": "s"}
    bodies = {
        "create_session": asked(user_metadata={"a": "HERE"}),
        "create_model": asked(
            **session, model_seq_id=9, base_model="toy", user_metadata={"a": "HERE"}
        ),
        "save_weights": asked(**run, user_metadata={"a": "HERE"}),
        "create_custom_loss": asked(
            **body(client.session, graph={"format": 1, "nodes": [], "x": "HERE"})
        ),
    }
    for path, content in bodies.items():
        refused = await client.http.post(f"/api/v1/{path}", content=content)
        assert (refused.status_code, refused.json()["category"]) == (400, "user"), path
