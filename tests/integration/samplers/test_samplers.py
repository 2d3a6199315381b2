"""What every engine does that samples for a trainer: the built-in one, and vLLM for CPUs."""

import asyncio
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from openai import APIStatusError, AsyncOpenAI
from tests.integration.samplers.asking import Oracle, generated, tensor, unloaded
from tests.integration.samplers.publishing import PROMPT, PublishedModel
from tests.support.factories.toy_model import make_adapter
from tests.support.processes.engine import RunningEngine
from transformers import AutoTokenizer

from windlass.inference_api.routes import GENERATE, WEIGHT_VERSION
from windlass.tuning.samplers.engine_sampler import EngineSampler
from windlass.tuning_api.trainers.port import TrainerLost
from windlass.tuning_api.trainers.records import OperationFailed, SampleRequest, Samples
from windlass_agent.engines.port import EngineControl, EngineKind

pytestmark = [pytest.mark.torch, pytest.mark.vllm, pytest.mark.timeout(1800)]
GREEDY: dict[str, Any] = {
    "model": "toy",
    "prompt": PROMPT,
    "temperature": 0,
    "logprobs": 1,
    "extra_body": {"ignore_eos": True},
}


async def answered(client: AsyncOpenAI, **more: Any) -> tuple[Any, str]:
    """The log-probabilities of an answer, and the version that it names."""
    raw = await client.completions.with_raw_response.create(**{**GREEDY, "max_tokens": 8, **more})
    logprobs = raw.parse().choices[0].logprobs
    assert logprobs
    assert logprobs.token_logprobs
    return [one for one in logprobs.token_logprobs if one is not None], raw.headers[WEIGHT_VERSION]


async def follow(control: EngineControl, model: PublishedModel) -> str:
    """Publishes a version and puts it in place."""
    version = await model.step()
    await control.update_weights(version, model.root)
    return str(version)


async def test_a_tuning_session_samples_there_what_peft_does(
    engine: RunningEngine, model: PublishedModel, toy: Path, adapter: Path, tmp_path: Path
) -> None:
    """First of all: an adapter is of the base as it was loaded, and of no later version."""
    sampler = EngineSampler("toy", engine.endpoint, places=1)
    asked = SampleRequest(
        base_model="toy", adapter=adapter, prompt=tensor(PROMPT[:40]), count=18, max_tokens=5,
        temperature=0, seed=3, with_prompt_logprobs=True, topk_prompt_logprobs=2,
        topk_sample_logprobs=3,
    )  # fmt: skip
    found = await sampler.sample(asked)
    assert isinstance(found, Samples)
    assert len(found.sequences) == 18
    said = Oracle(model.network, toy, adapter).checked(asked, found)
    drawn = await sampler.sample(replace(asked, temperature=1.0))
    one = await sampler.sample(replace(asked, temperature=1.0, count=1, seed=3 + 17))
    assert isinstance(drawn, Samples)
    assert isinstance(one, Samples)
    assert len({sequence.tokens for sequence in drawn.sequences}) > 1
    assert drawn.sequences[17].tokens == one.sequences[0].tokens, "of the second request"
    # Of another adapter in its only place, and back.
    other = make_adapter(toy, tmp_path / "other", seed=9)
    different = await sampler.sample(replace(asked, adapter=other))
    assert Oracle(model.network, toy, other).checked(asked, different) != said
    assert Oracle(model.network, toy, adapter).checked(asked, await sampler.sample(asked)) == said
    await asyncio.to_thread(unloaded, engine)
    with pytest.raises(TrainerLost, match="404"):
        await sampler.sample(asked)
    assert Oracle(model.network, toy, adapter).checked(asked, await sampler.sample(asked)) == said
    await sampler.close()


async def test_it_answers_by_each_version_without_a_restart(
    kind: EngineKind, engine: RunningEngine, control: EngineControl, model: PublishedModel
) -> None:
    """The first one is a delta against the folder that it was started with."""
    assert kind.capabilities.weight_updates
    async with engine.client() as client:
        assert await answered(client) == (pytest.approx(model.logprobs(8), abs=1e-4), "0")
        seen = []
        for _ in range(3):
            version = await follow(control, model)
            logprobs, told = await answered(client)
            assert logprobs == pytest.approx(model.logprobs(8), abs=1e-4)
            assert told == version == str(await control.weight_version())
            seen.append(logprobs[0])
        assert len(set(seen)) == 3
    assert (await model.medium.manifest(1)).parent == 0


async def test_no_key_or_value_of_an_older_version_answers_for_a_newer_one(
    engine: RunningEngine, control: EngineControl, model: PublishedModel
) -> None:
    async with engine.client() as client:
        old, _ = await answered(client)
        assert (await answered(client))[0] == pytest.approx(old, abs=1e-5), "perhaps from a cache"
        version = await follow(control, model)
        new = model.logprobs(8)
        assert new[0] != pytest.approx(old[0], abs=1e-3)
        assert await answered(client) == (pytest.approx(new, abs=1e-4), version)


# The built-in engine keeps no cache of prompts.
@pytest.mark.parametrize("kind", ["vllm"], indirect=True, scope="module")
async def test_vllm_s_own_update_answers_from_the_cache_of_the_weights_before(
    engine: RunningEngine, control: EngineControl, model: PublishedModel
) -> None:
    """The trap that ours is held against: the same prompt, the new weights, the old keys."""
    await follow(control, model)
    async with engine.client() as client:
        await answered(client)
        await model.step()
        model.network.save_pretrained(model.scratch / "raw")
        raw = {"method": "reload_weights", "kwargs": {"weights_path": str(model.scratch / "raw")}}
        with engine.http() as http:
            assert (await asyncio.to_thread(http.post, "/collective_rpc", json=raw)).is_success
        stale, _ = await answered(client)
        assert stale[0] != pytest.approx(model.logprobs(1)[0], abs=1e-3)
        await control.update_weights(model.version, model.root)
        assert (await answered(client))[0] == pytest.approx(model.logprobs(8), abs=1e-4)


async def test_a_request_may_demand_a_version_and_gets_that_or_nothing(
    engine: RunningEngine, control: EngineControl, model: PublishedModel
) -> None:
    now = await follow(control, model)
    async with engine.client() as client:
        assert (await answered(client, extra_headers={WEIGHT_VERSION: now}))[1] == now
        for other in ("0", str(model.version + 1)):
            with pytest.raises(APIStatusError) as refusal:
                await answered(client, extra_headers={WEIGHT_VERSION: other})
            found = refusal.value
            assert (found.status_code, found.code) == (409, "weight_version_mismatch")
            assert found.response.headers[WEIGHT_VERSION] == now
        with pytest.raises(APIStatusError) as refusal:
            await answered(client, extra_headers={WEIGHT_VERSION: "one"})
        assert (refusal.value.status_code, refusal.value.code) == (400, "invalid_value")


async def test_a_version_that_is_refused_changes_nothing(
    engine: RunningEngine, control: EngineControl, model: PublishedModel, tmp_path: Path
) -> None:
    now = await follow(control, model)
    kept = model.logprobs(8)
    await model.step()
    path = model.root / f"{model.version:016}" / "weights.bin"
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    refused: list[tuple[dict[str, Any], int, str]] = [
        ({"version": model.version, "path": str(model.root)}, 400, "damaged_content"),
        ({"version": 99, "path": str(model.root)}, 404, "unknown_version"),
        ({"version": 99, "path": str(tmp_path / "none")}, 404, "unknown_version"),
        ({"version": 2, "path": "relative"}, 400, "invalid_value"),
    ]
    with engine.http() as http:
        for body, status, code in refused:
            found = http.post("/update_weights", json=body)
            assert (found.status_code, found.json()["error"]["code"]) == (status, code)
    async with engine.client() as client:
        assert await answered(client) == (pytest.approx(kept, abs=1e-4), now)
    path.write_bytes(content)
    await control.update_weights(model.version, model.root)


async def test_what_is_open_ends_on_its_version_or_the_update_is_refused(
    engine: RunningEngine, control: EngineControl, model: PublishedModel
) -> None:
    old = model.logprobs(200)
    before = str(await control.weight_version())
    version = await model.step()
    update = {"version": version, "path": str(model.root), "wait_seconds": 0}
    async with engine.client() as client:
        raw = await client.completions.with_raw_response.create(
            **GREEDY, max_tokens=200, stream=True
        )
        assert raw.headers[WEIGHT_VERSION] == before
        chunks = aiter(raw.parse())
        streamed = [*(await anext(chunks)).choices[0].logprobs.token_logprobs]
        with engine.http() as http:
            found = await asyncio.to_thread(http.post, "/update_weights", json=update)
        assert (found.status_code, found.json()["error"]["code"]) == (503, "weights_in_use")
        waiting = asyncio.create_task(control.update_weights(version, model.root))
        async for chunk in chunks:
            for choice in chunk.choices:
                streamed += choice.logprobs.token_logprobs if choice.logprobs else []
        assert streamed == pytest.approx(old, abs=1e-3), "the whole of it is of the old weights"
        await waiting
        assert await answered(client) == (pytest.approx(model.logprobs(8), abs=1e-4), str(version))


async def test_a_client_that_leaves_holds_no_update_back(
    engine: RunningEngine, control: EngineControl, model: PublishedModel
) -> None:
    version = await model.step()
    async with engine.client() as client:
        stream = await client.completions.create(**GREEDY, max_tokens=200, stream=True)
        await anext(aiter(stream))
        await stream.close()
        await control.update_weights(version, model.root)
        assert (await answered(client))[1] == str(version)


async def test_an_adapter_stays_over_a_version(
    engine: RunningEngine, control: EngineControl, model: PublishedModel, adapter: Path
) -> None:
    await control.load_adapter("one", adapter)
    async with engine.client() as client:
        before, _ = await answered(client, model="one")
        version = await follow(control, model)
        after, told = await answered(client, model="one")
        plain, _ = await answered(client)
        assert told == version
        assert after != pytest.approx(before, abs=1e-3)
        assert plain == pytest.approx(model.logprobs(8), abs=1e-4)
        assert plain != pytest.approx(after, abs=1e-3)


async def test_token_ids_are_continued_as_transformers_and_peft_do(
    engine: RunningEngine,
    control: EngineControl,
    model: PublishedModel,
    toy: Path,
    adapter: Path,
) -> None:
    """In fp32: greedy tokens, their log-probabilities, and those of the prompt with others."""
    await control.load_adapter("one", adapter)
    oracle, prompt = Oracle(model.network, toy, adapter), PROMPT[:40]
    answer = await asyncio.to_thread(
        generated, engine, prompt, "one",
        max_tokens=12, temperature=0, logprobs=3, prompt_logprobs=2, ignore_eos=True,
    )  # fmt: skip
    (choice,) = answer["choices"]
    tokens = choice["token_ids"]
    told = oracle.logprobs([*prompt, *tokens])
    rows = told[len(prompt) - 1 : -1]
    assert tokens == rows.argmax(-1).tolist()
    assert choice["finish_reason"] == "length"
    for row, token, said in zip(rows, tokens, choice["logprobs"]["content"], strict=True):
        assert said["token_id"] == token
        assert said["logprob"] == pytest.approx(float(row[token]), abs=1e-4)
        others = sorted({one["logprob"] for one in said["top_logprobs"]}, reverse=True)[:3]
        assert others == pytest.approx(row.topk(3).values.tolist(), abs=1e-4)
    assert answer["prompt_logprobs"][0] is None
    for row, token, ranked in zip(told, prompt[1:], answer["prompt_logprobs"][1:], strict=False):
        assert ranked[str(token)]["logprob"] == pytest.approx(float(row[token]), abs=1e-4)
        best = [one["logprob"] for one in ranked.values() if one["rank"] in (1, 2)]
        assert sorted(best, reverse=True) == pytest.approx(row.topk(2).values.tolist(), abs=1e-4)
    version = str(await control.weight_version())
    assert {one["version"] for one in choice["weight_versions"]} == {version}


async def test_a_seed_decides_each_of_several_continuations(engine: RunningEngine) -> None:
    def drawn(seed: int, count: int = 4) -> list[list[int]]:
        answer = generated(engine, PROMPT[:20], n=count, seed=seed, max_tokens=6, ignore_eos=True)
        return [one["token_ids"] for one in answer["choices"]]

    first = await asyncio.to_thread(drawn, 7)
    assert len({tuple(one) for one in first}) == 4
    assert await asyncio.to_thread(drawn, 7) == first
    other = await asyncio.to_thread(drawn, 1000)
    assert other != first
    # The second of one seed is the first of the next, so that a request may be cut into several.
    assert (await asyncio.to_thread(drawn, 8, 1)) == first[1:2]


async def test_a_continuation_ends_with_the_tokens_that_completed_a_stop(
    engine: RunningEngine, toy: Path
) -> None:
    tokenizer = AutoTokenizer.from_pretrained(toy)
    prompt = PROMPT[:30]

    def greedy(**more: Any) -> Any:
        (choice,) = generated(
            engine, prompt, max_tokens=24, temperature=0, logprobs=0, ignore_eos=True, **more
        )["choices"]
        assert len(choice["logprobs"]["content"]) == len(choice["token_ids"])
        return choice

    whole = (await asyncio.to_thread(greedy))["token_ids"]
    assert len(whole) == 24
    at = next(place for place in range(3, 24) if whole[place] not in whole[:place])
    stopped = await asyncio.to_thread(partial(greedy, stop_token_ids=[whole[at]]))
    assert (stopped["token_ids"], stopped["finish_reason"]) == (whole[: at + 1], "stop")
    texts = [tokenizer.decode(whole[: place + 1]) for place in range(24)]
    word = next(one for one in texts[5][len(texts[2]) :] if one.isascii() and one.isprintable())
    ends = next(place for place, text in enumerate(texts) if word in text)
    stopped = await asyncio.to_thread(partial(greedy, stop=[word]))
    assert (stopped["token_ids"], stopped["finish_reason"]) == (whole[: ends + 1], "stop")


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"temperature": -1}, "temperature"),
        ({"n": 0}, "n"),
        ({"logprobs": 101}, "logprobs"),
        ({"top_p": 3}, "top_p"),
    ],
)
async def test_wrong_parameters_are_refused_by_name(
    engine: RunningEngine, wrong: dict[str, Any], named: str
) -> None:
    body = {"model": "toy", "token_ids": [5, 6], "sampling_params": {"max_tokens": 2} | wrong}
    with engine.http() as http:
        refused = await asyncio.to_thread(http.post, GENERATE, json=body)
        assert refused.status_code == 400, refused.text
        assert named in refused.text
        unknown = {**body, "token_ids": [10**6], "sampling_params": {"max_tokens": 2}}
        assert (await asyncio.to_thread(http.post, GENERATE, json=unknown)).status_code == 400


async def test_no_session_samples_by_weights_that_its_adapter_is_not_of(
    engine: RunningEngine, control: EngineControl, model: PublishedModel, adapter: Path
) -> None:
    await follow(control, model)
    sampler = EngineSampler("toy", engine.endpoint, places=1)
    asked = SampleRequest(
        base_model="toy", adapter=adapter, prompt=tensor(PROMPT[:9]), count=1, max_tokens=5
    )
    refused = await sampler.sample(asked)
    assert isinstance(refused, OperationFailed)
    assert (refused.reason, refused.category) == ("weight_version_mismatch", "server")
    await sampler.close()
