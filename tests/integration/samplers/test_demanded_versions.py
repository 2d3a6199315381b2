"""Versions of weights through the front door: demanded, named, and never another one's."""

import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openai
import pytest
import torch
from aiohttp import web
from tests.support.factories.toy_model import make_model
from tests.support.processes.engine import running_engine as real_engine
from tests.support.services.front import Front, running_engine, running_front
from tests.support.services.front_usage import used
from transformers import AutoModelForCausalLM

from windlass.inference_api.routes import WEIGHT_VERSION
from windlass.weight_versions import SharedMemory, VersionPublisher
from windlass_agent.engines.builtin.generation.tensor_bytes import tensor_bytes
from windlass_agent.engines.registry import engines

pytestmark = pytest.mark.torch
HI: Any = [{"role": "user", "content": "hi"}]


@pytest.fixture
async def front(database_url: str, tmp_path: Path) -> AsyncIterator[Front]:
    async with running_front(database_url, tmp_path / "data") as front:
        yield front


async def asked(client: openai.AsyncOpenAI, demand: str | None = None, **more: Any) -> str | None:
    """The version that an answer names."""
    headers = None if demand is None else {WEIGHT_VERSION: demand}
    raw = await client.chat.completions.with_raw_response.create(
        model="toy", messages=HI, max_tokens=2, extra_headers=headers, **more
    )
    if more.get("stream"):
        async for _ in raw.parse():
            pass
    found: str | None = raw.headers.get(WEIGHT_VERSION)
    return found


async def test_a_version_is_named_and_may_be_demanded(front: Front, tmp_path: Path) -> None:
    toy = make_model(tmp_path / "toy")
    network = AutoModelForCausalLM.from_pretrained(toy, dtype=torch.float32)
    medium = SharedMemory(f"test-{secrets.token_hex(6)}")
    publisher = VersionPublisher(medium, tmp_path, largest_delta=2)
    weights = tensor_bytes(dict(network.named_parameters()))
    with real_engine(toy) as engine:
        front.board.pin("toy", engine.endpoint)
        control = engines()["builtin"].control(engine.endpoint)
        client = front.openai()
        assert [await asked(client), await asked(client, stream=True)] == ["0", "0"]
        with pytest.raises(openai.APIStatusError) as refusal:
            await asked(client, "1")
        assert (refusal.value.status_code, refusal.value.code) == (409, "weight_version_mismatch")
        assert refusal.value.param == WEIGHT_VERSION
        await publisher.start(weights)
        with torch.no_grad():
            next(network.parameters()).add_(0.5)
        await publisher.put(1, weights)
        await control.update_weights(1, medium.root)
        assert (await control.served()).weight_version == 1
        assert [await asked(client, "1"), await asked(client, "1", stream=True)] == ["1", "1"]
        with pytest.raises(openai.APIStatusError, match="of version 1"):
            await asked(client, "0", stream=True)
        await control.close()
    publisher.close()
    await medium.close()


@pytest.mark.parametrize("told", [None, "3", "no number", "1" * 40])
async def test_what_an_engine_answers_with_another_version_is_never_passed_on(
    front: Front, told: str | None
) -> None:
    """Also where the engine takes no notice of what is demanded."""

    async def answer(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        headers = {} if told is None else {WEIGHT_VERSION: told}
        return web.json_response({"choices": [], "secret": "x"}, headers=headers)

    async with running_engine() as engine:
        engine.handler = answer
        front.board.pin("toy", engine.address)
        client = front.openai()
        with pytest.raises(openai.APIStatusError) as refusal:
            await asked(client, "2")
        assert (refusal.value.status_code, refusal.value.code) == (409, "weight_version_mismatch")
        assert "secret" not in refusal.value.response.text
        assert await asked(client) == ("3" if told == "3" else None)


async def test_what_an_engine_worked_on_in_vain_is_counted_all_the_same(front: Front) -> None:
    """Or else a demand that nothing meets would have engines work for nothing."""
    async with running_engine() as engine:
        front.board.pin("toy", engine.address)
        with pytest.raises(openai.APIStatusError) as refusal:
            await asked(front.openai(), "2")
        assert refusal.value.status_code == 409
        assert (await used(front, 1))["input_tokens"] > 0


@pytest.mark.parametrize("wrong", ["", "-1", "1.0", "one", "1" * 40])
async def test_a_demand_that_is_no_number_reaches_no_engine(front: Front, wrong: str) -> None:
    async with running_engine() as engine:
        front.board.pin("toy", engine.address)
        with pytest.raises(openai.BadRequestError) as refusal:
            await asked(front.openai(), wrong)
        assert (refusal.value.code, refusal.value.param) == ("invalid_value", WEIGHT_VERSION)
        assert engine.bodies == []
