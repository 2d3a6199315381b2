"""The built-in engine takes a version in place: no answer mixes two, each names its own."""

import asyncio
import secrets
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from openai import APIStatusError, AsyncOpenAI
from tests.support.processes.engine import RunningEngine, running_engine
from tests.support.waiting import until
from transformers import AutoModelForCausalLM

from windlass.inference_api.routes import ENGINE_ROUTES, WEIGHT_VERSION
from windlass.weight_versions import FolderMedium, SharedMemory, VersionMedium, VersionPublisher
from windlass_agent.engines.builtin.generation.loading import load_model
from windlass_agent.engines.builtin.generation.sleeping import DroppableWeights
from windlass_agent.engines.builtin.generation.tensor_bytes import DeviceBytes, tensor_bytes
from windlass_agent.engines.port import EngineControl, EngineError
from windlass_agent.engines.registry import engines

pytestmark = pytest.mark.torch
PROMPT = list(range(20, 60))
GREEDY: dict[str, Any] = {
    "model": "toy",
    "prompt": PROMPT,
    "temperature": 0,
    "logprobs": 1,
    "extra_body": {"ignore_eos": True},
}


@dataclass
class Trainer:
    """A copy of the model that is trained elsewhere, and its versions."""

    network: Any
    medium: VersionMedium
    root: Path
    publisher: VersionPublisher
    version: int = 0

    async def step(self) -> int:
        """Changes and publishes the weights; returns the version."""
        torch.manual_seed(self.version)
        with torch.no_grad():
            for parameter in self.network.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.02)
        self.version += 1
        parameters = dict(self.network.named_parameters())
        await self.publisher.put(self.version, tensor_bytes(parameters))
        return self.version

    def logprobs(self, count: int) -> list[float]:
        """Those of the tokens that the weights of now choose."""
        ids, found = list(PROMPT), []
        with torch.no_grad():
            for _ in range(count):
                scores = self.network(torch.tensor([ids])).logits[0, -1].log_softmax(-1)
                ids.append(int(scores.argmax()))
                found.append(float(scores.max()))
        return found


@pytest.fixture
async def trainer(
    toy: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> AsyncIterator[Trainer]:
    network = AutoModelForCausalLM.from_pretrained(toy, dtype=torch.float32).eval()
    medium: VersionMedium
    if getattr(request, "param", "shared_memory") == "shared_memory":
        medium = SharedMemory(f"test-{secrets.token_hex(6)}")
        root = medium.root
    else:
        root = tmp_path / "volume"
        root.mkdir()
        medium = FolderMedium(root, tmp_path)
    # In fp32 such steps change about every bit.
    publisher = VersionPublisher(medium, tmp_path, largest_delta=2)
    await publisher.start(tensor_bytes(dict(network.named_parameters())))
    yield Trainer(network, medium, root, publisher)
    publisher.close()
    await medium.close()


@pytest.fixture
async def fresh(toy: Path) -> AsyncIterator[RunningEngine]:
    """An engine of its own, since its weights change."""
    with running_engine(toy) as running:
        yield running


@pytest.fixture
async def steered(fresh: RunningEngine) -> AsyncIterator[EngineControl]:
    one = engines()["builtin"].control(fresh.endpoint)
    yield one
    await one.close()


async def answered(client: AsyncOpenAI, **more: Any) -> tuple[Any, str]:
    """The log-probabilities of an answer, and the version that it names."""
    raw = await client.completions.with_raw_response.create(**{**GREEDY, "max_tokens": 8, **more})
    logprobs = raw.parse().choices[0].logprobs
    assert logprobs
    assert logprobs.token_logprobs
    return [one for one in logprobs.token_logprobs if one is not None], raw.headers[WEIGHT_VERSION]


@pytest.mark.parametrize("trainer", ["shared_memory", "volume"], indirect=True)
async def test_it_answers_by_each_version_without_a_restart(
    fresh: RunningEngine, steered: EngineControl, trainer: Trainer
) -> None:
    assert engines()["builtin"].capabilities.weight_updates
    async with fresh.client() as client:
        assert await answered(client) == (pytest.approx(trainer.logprobs(8), abs=1e-4), "0")
        assert await steered.weight_version() == 0
        seen = []
        for _ in range(3):
            version = await trainer.step()
            await steered.update_weights(version, trainer.root)
            logprobs, told = await answered(client)
            assert logprobs == pytest.approx(trainer.logprobs(8), abs=1e-4)
            assert told == str(version) == str(await steered.weight_version())
            seen.append(logprobs)
        assert len({tuple(one) for one in seen}) == 3
        await steered.update_weights(3, trainer.root)
        assert await steered.weight_version() == 3


async def test_what_is_open_ends_on_its_version_and_what_comes_waits_for_the_next(
    fresh: RunningEngine, steered: EngineControl, trainer: Trainer
) -> None:
    """No key or value of the old weights meets the new ones: the whole stream is of the old."""
    old = trainer.logprobs(400)
    version = await trainer.step()
    new = trainer.logprobs(1)
    assert new != pytest.approx(old[:1], abs=1e-3)
    async with fresh.client() as client:
        raw = await client.completions.with_raw_response.create(
            **GREEDY, max_tokens=400, stream=True
        )
        assert raw.headers[WEIGHT_VERSION] == "0"
        chunks = aiter(raw.parse())
        streamed = [*(await anext(chunks)).choices[0].logprobs.token_logprobs]
        await refused_in_use(fresh, trainer, version)

        async def others() -> None:
            """Requests that come meanwhile are of one version or the other, and none fails."""
            told = "0"
            while told == "0":
                logprobs, told = await answered(client, max_tokens=1)
                assert logprobs == pytest.approx(old[:1] if told == "0" else new, abs=1e-4)

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(steered.update_weights(version, trainer.root))
            tasks.create_task(others())
            async for chunk in chunks:
                streamed += chunk.choices[0].logprobs.token_logprobs
        assert len(streamed) == 400
        assert streamed == pytest.approx(old, abs=1e-4)
        assert await answered(client) == (pytest.approx(trainer.logprobs(8), abs=1e-4), "1")


async def refused_in_use(engine: RunningEngine, trainer: Trainer, version: int) -> None:
    """An update that waits for nobody is refused, so requests are open."""
    body = {"version": version, "path": str(trainer.root), "wait_seconds": 0}
    with engine.http() as http:
        found = await asyncio.to_thread(http.post, "/update_weights", json=body)
    assert (found.status_code, found.json()["error"]["code"]) == (503, "weights_in_use")


async def test_a_request_may_demand_a_version_and_gets_that_or_nothing(
    fresh: RunningEngine, steered: EngineControl, trainer: Trainer
) -> None:
    await steered.update_weights(await trainer.step(), trainer.root)
    generated = "generated_tokens_total"
    async with fresh.client() as client:
        demand = {WEIGHT_VERSION: "1"}
        assert (await answered(client, extra_headers=demand))[1] == "1"
        before = fresh.metric(generated)
        for other in ("0", "2"):
            with pytest.raises(APIStatusError) as refusal:
                await answered(client, extra_headers={WEIGHT_VERSION: other})
            assert (refusal.value.status_code, refusal.value.code) == (
                409,
                "weight_version_mismatch",
            )
            assert refusal.value.response.headers[WEIGHT_VERSION] == "1"
            with pytest.raises(APIStatusError, match="of version 1"):
                await client.embeddings.create(
                    model="toy", input=[1], extra_headers={WEIGHT_VERSION: other}
                )
        for wrong in ("", "-1", "1.0", "one", "1" * 40):
            with pytest.raises(APIStatusError) as refusal:
                await answered(client, extra_headers={WEIGHT_VERSION: wrong})
            assert (refusal.value.status_code, refusal.value.code) == (400, "invalid_value")
        assert fresh.metric(generated) == before


async def test_a_version_that_is_refused_changes_nothing(
    fresh: RunningEngine, steered: EngineControl, trainer: Trainer, tmp_path: Path
) -> None:
    await steered.update_weights(await trainer.step(), trainer.root)
    kept = trainer.logprobs(8)
    await trainer.step()
    path = trainer.root / f"{2:016}" / "weights.bin"
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with fresh.http() as http:
        refused: list[tuple[dict[str, Any], int, str | None]] = [
            ({"version": 2, "path": str(trainer.root)}, 400, "damaged_content"),
            ({"version": 9, "path": str(trainer.root)}, 404, "unknown_version"),
            ({"version": 9, "path": str(tmp_path / "none")}, 404, "unknown_version"),
            ({"version": 2, "path": "relative"}, 400, "invalid_value"),
            ({"version": 0, "path": "/"}, 400, None),
            ({"version": "2", "path": "/"}, 400, None),
            ({"version": 2}, 400, None),
        ]
        for body, status, code in refused:
            found = http.post("/update_weights", json=body)
            assert found.status_code == status, found.text
            assert code in (None, found.json()["error"]["code"]), found.text
    async with fresh.client() as client:
        assert await answered(client) == (pytest.approx(kept, abs=1e-4), "1")


async def test_requests_that_do_not_end_in_time_keep_their_version(
    fresh: RunningEngine, steered: EngineControl, trainer: Trainer
) -> None:
    version = await trainer.step()
    async with fresh.client() as client:
        stream = await client.completions.create(**GREEDY, max_tokens=300, stream=True)
        chunks = aiter(stream)
        await anext(chunks)
        await refused_in_use(fresh, trainer, version)
        assert (await answered(client))[1] == "0", "what came meanwhile goes on"
        await stream.close()
        await steered.update_weights(version, trainer.root)
        assert (await answered(client))[1] == "1"


async def test_after_sleep_it_has_and_names_the_weights_of_its_folder(
    fresh: RunningEngine, steered: EngineControl, trainer: Trainer
) -> None:
    base = trainer.logprobs(8)
    await steered.update_weights(await trainer.step(), trainer.root)
    await steered.sleep()
    with pytest.raises(EngineError, match="sleeps"):
        await steered.update_weights(1, trainer.root)
    await steered.wake()
    async with fresh.client() as client:
        assert await answered(client) == (pytest.approx(base, abs=1e-4), "0")
        await steered.update_weights(1, trainer.root)
        assert await answered(client) == (pytest.approx(trainer.logprobs(8), abs=1e-4), "1")


async def test_an_adapter_stays_over_a_version(
    fresh: RunningEngine, steered: EngineControl, trainer: Trainer, adapters: dict[str, Path]
) -> None:
    await steered.load_adapter("one", adapters["one"])
    async with fresh.client() as client:
        before, _ = await answered(client, model="one")
        await steered.update_weights(await trainer.step(), trainer.root)
        after, told = await answered(client, model="one")
        assert told == "1"
        assert after != before
        plain, _ = await answered(client)
        assert plain == pytest.approx(trainer.logprobs(8), abs=1e-4)
        assert plain != after


# An engine whose memory takes two changes and no more, not even back.
_TEARS = """
import sys
from windlass.weight_versions import ArrayBytes
from windlass_agent.engines.builtin.__main__ import main
calls, xor = [], ArrayBytes.xor
def failing(self, start, difference):
    calls.append(start)
    if len(calls) > 2:
        raise OSError("lost")
    xor(self, start, difference)
ArrayBytes.xor = failing
sys.exit(main())
"""


async def test_an_engine_whose_weights_are_torn_answers_nothing_and_ends(
    toy: Path, trainer: Trainer, tmp_path: Path
) -> None:
    socket = tmp_path / "s"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _TEARS, f"--model={toy}", "--served-model-name=toy",
        f"--uds={socket}", "--device=cpu",
    )  # fmt: skip
    control = engines()["builtin"].control(f"unix://{socket}")
    try:
        await until(control.ready, 120)
        with pytest.raises(EngineError) as failure:
            await control.update_weights(await trainer.step(), trainer.root)
        assert failure.value.status in (0, 500)
        assert await asyncio.wait_for(process.wait(), 60) is not None
        assert not await control.ready()
    finally:
        await control.close()
        if process.returncode is None:
            process.kill()
            await process.wait()


def test_the_routes_are_the_agent_s_alone() -> None:
    assert not ENGINE_ROUTES & {"/update_weights", "/weight_version"}


def test_memory_of_a_device_is_read_and_changed_as_that_of_the_machine(toy: Path) -> None:
    """In chunks that are copied; here the device is the machine."""
    parameters = DroppableWeights(load_model(toy, name="toy", cpus=1)).parameters
    name, host = next(iter(tensor_bytes(parameters).items()))
    flat = parameters[name].detach().clone().reshape(-1).view(torch.uint8)
    device = DeviceBytes(flat, host.dtype, host.shape)
    difference = host.read(8, 24).copy()
    assert device.nbytes == host.nbytes
    for one in (host, device):
        one.xor(16, difference)
        one.write(40, difference)
    assert bytes(device.read(0, device.nbytes)) == bytes(host.read(0, host.nbytes))


def test_what_versions_cannot_hold_is_refused_by_name() -> None:
    for tensor in (torch.zeros(2, dtype=torch.int64), torch.zeros(4, 4).T[1:]):
        with pytest.raises(ValueError, match="strange"):
            tensor_bytes({"strange": tensor})
