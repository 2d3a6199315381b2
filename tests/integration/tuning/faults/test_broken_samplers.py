"""Engines that sample, and break off or begin anew: adapters are asked again, not refused."""

import asyncio
import struct
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from aiohttp import web

from windlass.inference_api.routes import GENERATE, WEIGHT_VERSION
from windlass.tuning.samplers.engine_sampler import EngineSampler
from windlass.tuning_api.trainers.port import TrainerLost
from windlass.tuning_api.trainers.records import DType, SampleRequest, Samples, Tensor

SLOW = 9


@dataclass
class AdapterEngine:
    """An engine that keeps adapters as vLLM does: it refuses to load a name twice."""

    address: str = ""
    loaded: set[str] = field(default_factory=set)
    breaks: bool = False
    has_slow: asyncio.Event = field(default_factory=asyncio.Event)
    go: asyncio.Event = field(default_factory=asyncio.Event)

    async def load(self, request: web.Request) -> web.Response:
        name = (await request.json())["lora_name"]
        if name in self.loaded:
            return web.json_response({"error": "has already been loaded"}, status=400)
        self.loaded.add(name)
        return web.Response()

    async def unload(self, request: web.Request) -> web.Response:
        self.loaded.remove((await request.json())["lora_name"])
        return web.Response()

    async def models(self, request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": one, "parent": "toy"} for one in self.loaded]})

    async def generate(self, request: web.Request) -> web.Response:
        body = await request.json()
        if body["token_ids"] == [SLOW]:
            self.has_slow.set()
            await self.go.wait()
        if self.breaks:
            self.breaks = False
            assert request.transport is not None
            request.transport.close()
        if body["model"] not in {"toy", *self.loaded}:
            return web.json_response({}, status=404)
        said = {"token_id": 7, "logprob": -1.0, "top_logprobs": []}
        choice = {"token_ids": [7], "logprobs": {"content": [said]}, "finish_reason": "length"}
        return web.json_response({"choices": [choice]}, headers={WEIGHT_VERSION: "0"})


@pytest.fixture
async def engine() -> AsyncIterator[AdapterEngine]:
    made = AdapterEngine()
    application = web.Application()
    application.router.add_post("/v1/load_lora_adapter", made.load)
    application.router.add_post("/v1/unload_lora_adapter", made.unload)
    application.router.add_get("/v1/models", made.models)
    application.router.add_post(GENERATE, made.generate)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.address = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield made
    await runner.cleanup()


@pytest.fixture
async def sampler(engine: AdapterEngine) -> AsyncIterator[EngineSampler]:
    made = EngineSampler("toy", engine.address, places=4)
    yield made
    await made.close()


def asked(adapter: Path, token: int = 3) -> SampleRequest:
    prompt = Tensor(DType.INT32, (1,), struct.pack("<i", token))
    return SampleRequest(
        base_model="toy", adapter=adapter, prompt=prompt, count=1, max_tokens=1, temperature=0
    )


def folders(tmp_path: Path) -> list[Path]:
    found = [tmp_path / "one", tmp_path / "other"]
    for one in found:
        one.mkdir()
    return found


async def test_a_connection_that_breaks_costs_one_answer_alone(
    engine: AdapterEngine, sampler: EngineSampler, tmp_path: Path
) -> None:
    one, other = folders(tmp_path)
    for folder in (one, other):
        assert isinstance(await sampler.sample(asked(folder)), Samples)
    engine.breaks = True
    with pytest.raises(TrainerLost):
        await sampler.sample(asked(one))
    for folder in (one, other):
        assert isinstance(await sampler.sample(asked(folder)), Samples)


async def test_an_engine_that_begins_anew_is_given_what_is_asked_all_the_time(
    engine: AdapterEngine, sampler: EngineSampler, tmp_path: Path
) -> None:
    one, _ = folders(tmp_path)
    slow = asyncio.create_task(sampler.sample(asked(one, SLOW)))
    await engine.has_slow.wait()
    engine.loaded.clear()
    with pytest.raises(TrainerLost, match="404"):
        await sampler.sample(asked(one))
    # While another still has it in use.
    assert isinstance(await sampler.sample(asked(one)), Samples)
    engine.go.set()
    assert isinstance(await slow, Samples)
    assert isinstance(await sampler.sample(asked(one)), Samples)
