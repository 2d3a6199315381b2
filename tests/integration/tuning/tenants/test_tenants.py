"""Another project's names do not exist: in every field of every route, by the same words."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from tests.integration.tuning.test_log import Client
from tests.support.services.filled_tenant import ok
from tests.support.services.front import Front

PROMPT = {"chunks": [{"type": "encoded_text", "tokens": [1]}]}
LOSS = {"data": [{"model_input": PROMPT}], "loss_fn": "cross_entropy"}
NEVER = "session-" + "n" * 24


@pytest.fixture
async def mine(front: Front) -> AsyncIterator[dict[str, str]]:
    """Yields the names of what the owner's project has."""
    async with front.http() as http:
        client = Client(http)
        await client.begin()
        saved = await client.post(
            "save_weights", {"model_id": client.run, "path": "s", "seq_id": 1}
        )
        path = (await client.result(saved))["path"]
        body = {
            "session_id": client.session, "sampling_session_seq_id": 0, "base_model": "toy",
        }  # fmt: skip
        sampler = await client.post("create_sampling_session", body)
        yield {
            "session": client.session, "run": client.run, "path": path,
            "sampler": sampler["sampling_session_id"], "request": saved["request_id"],
        }  # fmt: skip
        # Whatever others tried, it goes on.
        step = await client.result(await client.step(2))
        assert step["metrics"]["step:max"] == 1.0


@pytest.fixture
async def stranger(front: Front) -> AsyncIterator[httpx.AsyncClient]:
    """Yields a client of another organization, which owns its project."""
    async with front.http() as http:
        made = await ok(http.post("/v1/organizations", json={"title": "Others"}))
        http.headers["OpenAI-Organization"] = made["id"]
        project = await ok(http.post("/v1/projects", json={"title": "theirs"}))
        body = {"name": "key", "project_id": project["id"], "role": "project_owner"}
        key = await ok(http.post("/v1/api_keys", json=body))
    async with front.http(key["value"]) as http:
        yield http


def requests(names: dict[str, str], own: str) -> list[tuple[str, str, dict[str, Any] | None]]:
    """Every route with every name that it takes; `own` is a session of who asks."""
    session, run, path = names["session"], names["run"], names["path"]
    ours = {"path": path, "optimizer": True}
    new = {"model_seq_id": 5, "base_model": "toy"}
    sample: dict[str, Any] = {"prompt": PROMPT, "sampling_params": {}}
    sampler = {"sampling_session_seq_id": 5}
    posts: list[tuple[str, dict[str, Any]]] = [
        ("session_heartbeat", {"session_id": session}),
        (f"sessions/{session}/finish", {"reason": {"type": "success"}}),
        ("create_model", {"session_id": session, **new}),
        ("load_weights", {"session_id": session, "model_seq_id": 5, **ours}),
        ("load_weights", {"session_id": own, "model_seq_id": 5, **ours}),
        ("load_weights", {"model_id": run, "seq_id": 2, **ours}),
        ("get_info", {"model_id": run}),
        ("unload_model", {"model_id": run}),
        ("forward_backward", {"model_id": run, "seq_id": 2, "forward_backward_input": LOSS}),
        ("forward", {"model_id": run, "seq_id": 2, "forward_input": LOSS}),
        ("optim_step", {"model_id": run, "seq_id": 2, "adam_params": {}}),
        ("save_weights", {"model_id": run, "seq_id": 2, "path": "t"}),
        ("save_weights_for_sampler", {"model_id": run, "seq_id": 2, "path": "t"}),
        ("create_sampling_session", {"session_id": session, "base_model": "toy", **sampler}),
        ("create_sampling_session", {"session_id": own, "model_path": path, **sampler}),
        ("asample", {"sampling_session_id": names["sampler"], "seq_id": 0, **sample}),
        ("asample", {"model_path": path, **sample}),
        ("retrieve_future", {"request_id": names["request"]}),
        ("cancel_future", {"request_id": names["request"]}),
        ("join_sampling_session", {"sampling_session_id": names["sampler"]}),
        ("weights_info", {"tinker_path": path}),
        (f"training_runs/{run}/replay", {}),
        (f"training_runs/{run}/fork", {}),
    ]
    others: list[tuple[str, str, dict[str, Any] | None]] = [
        ("GET", f"sessions/{session}", None),
        ("GET", f"samplers/{names['sampler']}", None),
        ("GET", f"training_runs/{run}", None),
        ("GET", f"training_runs/{run}/checkpoints", None),
        ("DELETE", f"training_runs/{run}/checkpoints/weights/s", None),
    ]
    others.append(("PUT", f"training_runs/{run}/checkpoints/weights/s/ttl", {"ttl_seconds": 60}))
    others.extend(("POST", *one) for one in posts)
    return others


async def test_what_is_others_never_was(mine: dict[str, str], stranger: httpx.AsyncClient) -> None:
    never = {
        "session": NEVER, "run": f"{NEVER}:train:0", "sampler": f"{NEVER}:sample:0",
        "path": f"tinker://{NEVER}:train:0/weights/s", "request": "op_" + "n" * 24,
    }  # fmt: skip
    own = (await ok(stranger.post("/api/v1/create_session", json={})))["session_id"]
    pairs = zip(requests(mine, own), requests(never, own), strict=True)
    for (method, path, body), (_, unknown, other) in pairs:
        said = await stranger.request(method, f"/api/v1/{path}", json=body)
        never_was = await stranger.request(method, f"/api/v1/{unknown}", json=other)
        assert said.status_code == never_was.status_code == 404, (path, said.text, never_was.text)
        assert blank(said.text, mine) == blank(never_was.text, never), path


async def test_lists_have_what_is_the_projects(
    mine: dict[str, str], stranger: httpx.AsyncClient, front: Front
) -> None:
    async with front.http() as owner:
        for path, name in (
            ("sessions", "session"), ("training_runs", "run"), ("checkpoints", "path"),
        ):  # fmt: skip
            shown = await owner.get(f"/api/v1/{path}")
            assert mine[name] in shown.text
            hidden = await stranger.get(f"/api/v1/{path}")
            assert hidden.status_code == 200
            assert mine["session"] not in hidden.text


async def test_a_viewer_reads_and_trains_nothing(front: Front, mine: dict[str, str]) -> None:
    async with front.http() as owner:
        body = {"name": "reader", "role": "project_viewer"}
        key = await ok(owner.post("/v1/api_keys", json=body))
    async with front.http(key["value"]) as viewer:
        info = await viewer.post("/api/v1/get_info", json={"model_id": mine["run"]})
        assert info.status_code == 200
        for path, asked in (
            ("create_session", {}),
            ("optim_step", {"model_id": mine["run"], "seq_id": 2, "adam_params": {}}),
        ):
            refused = await viewer.post(f"/api/v1/{path}", json=asked)
            assert refused.status_code == 403, refused.text


@pytest.mark.parametrize("key", ["", "tml-wl-" + "x" * 49, "wl-nothing"])
async def test_nobody_gets_in_without_a_key(front: Front, key: str) -> None:
    headers = {"X-API-Key": key} if key else {}
    async with httpx.AsyncClient(base_url=front.url) as http:
        assert (await http.get("/api/v1/healthz")).status_code == 200
        refused = await http.post("/api/v1/create_session", json={}, headers=headers)
        assert refused.status_code == 401
        assert refused.json()["category"] == "user"


def blank(text: str, names: dict[str, str]) -> str:
    for name in sorted(names.values(), key=len, reverse=True):
        text = text.replace(name, "…")
    return text
