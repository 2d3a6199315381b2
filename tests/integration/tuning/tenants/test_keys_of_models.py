"""A key for some models does nothing with runs and checkpoints of others."""

from typing import Any

import pytest
from tests.integration.tuning.test_log import ADAM, Client
from tests.support.services.filled_tenant import ok
from tests.support.services.front import Front

FRONT = pytest.mark.parametrize("front", [{"base_models": ["toy", "giant"]}], indirect=True)
TOKENS = {"chunks": [{"type": "encoded_text", "tokens": [1, 2]}]}


async def narrowed(front: Front, model: str) -> str:
    async with front.http() as owner:
        body = {"name": "narrow", "role": "project_owner", "models": [model]}
        return str((await ok(owner.post("/v1/api_keys", json=body)))["value"])


def asked(client: Client, path: str) -> list[tuple[str, str, Any]]:
    """Requests that use or change a run and its checkpoint, those that end it last."""
    run = {"model_id": client.run, "seq_id": 2}
    loss = {"data": [{"model_input": TOKENS}], "loss_fn": "cross_entropy"}
    checkpoint = f"training_runs/{client.run}/checkpoints/weights/s"
    return [
        ("POST", "get_info", {"model_id": client.run}),
        ("POST", "optim_step", run | {"adam_params": ADAM}),
        ("POST", "forward_backward", run | {"seq_id": 3, "forward_backward_input": loss}),
        ("POST", "save_weights_for_sampler", run | {"seq_id": 4, "path": "t"}),
        ("POST", "load_weights", run | {"seq_id": 5, "path": path, "optimizer": True}),
        ("POST", f"training_runs/{client.run}/replay", {}),
        ("POST", f"training_runs/{client.run}/fork", {}),
        ("POST", "weights_info", {"tinker_path": path}),
        ("POST", "copy_weights", {"source_path": path}),
        ("GET", f"{checkpoint}/external_weights_urls", None),
        ("POST", f"{checkpoint}/publish", None),
        ("DELETE", f"{checkpoint}/publish", None),
        ("PUT", f"{checkpoint}/ttl", {"ttl_seconds": 3600}),
        ("DELETE", checkpoint, None),
        ("POST", "unload_model", {"model_id": client.run}),
    ]


@FRONT
async def test_a_run_of_another_model_is_out_of_reach(front: Front) -> None:
    async with (
        front.http() as http,
        front.http(await narrowed(front, "giant")) as foreign,
        front.http(await narrowed(front, "toy")) as own,
    ):
        client = Client(http)
        await client.begin()
        body = {"model_id": client.run, "path": "s", "seq_id": 1}
        path = (await client.result(await client.post("save_weights", body)))["path"]
        for method, route, wish in asked(client, path):
            refused = await foreign.request(method, f"/api/v1/{route}", json=wish)
            assert (refused.status_code, "toy" in refused.text) == (404, True), route
        for method, route, wish in asked(client, path):
            done = await own.request(method, f"/api/v1/{route}", json=wish)
            assert done.status_code in (200, 204), (route, done.text)


FULL = {"windlass.full_parameters": True}


@pytest.mark.parametrize("front", [{"full_parameter_trainers": 1}], indirect=True)
async def test_a_path_makes_no_model_for_a_key_that_could_not_ask_it(front: Front) -> None:
    front.board.pin("toy", "http://127.0.0.1:1")
    async with front.http() as http, front.http(await narrowed(front, "toy")) as own:
        client = Client(http)
        await client.begin(user_metadata=FULL)
        body = {"model_id": client.run, "path": "s", "seq_id": 1}
        saved = await client.result(await client.post("save_weights_for_sampler", body))
        turn = {"model": saved["path"], "messages": [{"role": "user", "content": "x"}]}
        refused = await own.post("/v1/chat/completions", json=turn)
        assert (refused.status_code, refused.json()["error"]["param"]) == (404, "model")
        listed = await ok(http.get("/v1/models"))
        assert [one["id"] for one in listed["data"]] == ["toy"]
