"""Adapters come, answer beside each other, make room and go."""

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import openai
import pytest
import torch
from openai import AsyncOpenAI
from peft import PeftModel
from safetensors.torch import load_file, save_file
from tests.integration.engines.reference import Reference
from tests.support.factories.toy_model import make_adapter, make_model
from tests.support.processes.engine import RunningEngine
from tests.support.waiting import until
from transformers import AutoModelForCausalLM

from windlass_agent.engines.port import EngineControl, EngineError

pytestmark = pytest.mark.torch

PROMPT = "the quick brown"


async def _say(client: AsyncOpenAI, model: str, tokens: int = 30) -> str:
    answer = await client.completions.create(
        model=model, prompt=PROMPT, max_tokens=tokens, temperature=0
    )
    return answer.choices[0].text


def _expected(reference: Reference, base: Path, adapter: Path, tokens: int = 30) -> str:
    network = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), adapter)
    ids = reference.tokenizer.encode(PROMPT)
    return reference.text(Reference(network.eval(), reference.tokenizer).greedy(ids, tokens))


async def test_base_and_adapters_answer_side_by_side(
    client: AsyncOpenAI,
    control: EngineControl,
    reference: Reference,
    toy: Path,
    adapters: dict[str, Path],
) -> None:
    await control.load_adapter("ft:toy:acme.one", adapters["one"])
    await control.load_adapter("two", adapters["two"])
    names = ["toy", "ft:toy:acme.one", "two"]
    answers = await asyncio.gather(*[_say(client, name) for name in names * 3])
    base = reference.text(reference.greedy(reference.tokenizer.encode(PROMPT), 30))
    expected = [
        base,
        _expected(reference, toy, adapters["one"]),
        _expected(reference, toy, adapters["two"]),
    ]
    assert list(answers) == expected * 3
    assert len(set(expected)) == 3
    listed = {model.id: model for model in (await client.models.list()).data}
    assert set(listed) == set(names)
    assert listed["two"].model_dump()["parent"] == "toy"


async def test_the_least_recently_used_idle_one_makes_room(
    client: AsyncOpenAI, control: EngineControl, adapters: dict[str, Path]
) -> None:
    await control.load_adapter("one", adapters["one"])
    await control.load_adapter("two", adapters["two"])
    await _say(client, "one", 1)
    await control.load_adapter("three", adapters["three"])
    assert sorted(await control.loaded_adapters()) == ["one", "three"]
    with pytest.raises(openai.NotFoundError) as refusal:
        await _say(client, "two")
    assert refusal.value.code == "model_not_found"


async def test_one_in_use_stays_until_its_requests_have_ended(
    client: AsyncOpenAI, control: EngineControl, engine: RunningEngine, adapters: dict[str, Path]
) -> None:
    await control.load_adapter("one", adapters["one"])
    whole = await _say(client, "one", 300)
    streams = []
    for name in ("one", "two"):
        if name == "two":
            await control.load_adapter("two", adapters["two"])
        streams.append(
            await client.completions.create(
                model=name, prompt=PROMPT, max_tokens=300, temperature=0, stream=True
            )
        )
    with pytest.raises(EngineError, match="places for adapters are in use"):
        await control.load_adapter("three", adapters["three"])
    await control.unload_adapter("one")
    with pytest.raises(openai.NotFoundError):
        await _say(client, "one")
    assert "".join([chunk.choices[0].text async for chunk in streams[0]]) == whole
    await control.load_adapter("three", adapters["three"])
    assert sorted(await control.loaded_adapters()) == ["three", "two"]
    await streams[1].close()
    await until(lambda: engine.metric("sequences_running") == 0)


async def test_what_was_unloaded_takes_no_place_of_others_while_it_answers(
    client: AsyncOpenAI, control: EngineControl, engine: RunningEngine, adapters: dict[str, Path]
) -> None:
    await control.load_adapter("one", adapters["one"])
    await control.load_adapter("two", adapters["two"])
    stream = await client.completions.create(
        model="one", prompt=PROMPT, max_tokens=300, temperature=0, stream=True
    )
    await control.unload_adapter("one")
    with pytest.raises(EngineError, match="places for adapters are in use") as refusal:
        await control.load_adapter("three", adapters["three"])
    assert refusal.value.status == 503
    assert list(await control.loaded_adapters()) == ["two"]
    await stream.close()
    await until(lambda: engine.metric("sequences_running") == 0)
    await control.load_adapter("three", adapters["three"])
    assert sorted(await control.loaded_adapters()) == ["three", "two"]


async def test_the_last_one_gone_leaves_the_base_as_it_was(
    client: AsyncOpenAI, control: EngineControl, adapters: dict[str, Path]
) -> None:
    before = await _say(client, "toy")
    await control.load_adapter("one", adapters["one"])
    changed = await _say(client, "one")
    await control.unload_adapter("one")
    await control.unload_adapter("one")
    assert await _say(client, "toy") == before != changed
    await control.load_adapter("one", adapters["one"])
    assert await _say(client, "one") == changed


async def test_one_name_loads_once_and_the_port_takes_it_for_done(
    client: AsyncOpenAI, control: EngineControl, adapters: dict[str, Path]
) -> None:
    await control.load_adapter("one", adapters["one"])
    await control.load_adapter("one", adapters["one"])
    with pytest.raises(openai.BadRequestError) as refusal:
        await client.post(
            "/load_lora_adapter",
            body={"lora_name": "one", "lora_path": str(adapters["one"])},
            cast_to=object,
        )
    assert refusal.value.code == "adapter_exists"
    assert list(await control.loaded_adapters()) == ["one"]


async def test_what_is_no_adapter_is_refused_and_leaves_nothing(
    control: EngineControl, toy: Path, adapters: dict[str, Path], tmp_path: Path
) -> None:
    async def refused(path: Path) -> int:
        with pytest.raises(EngineError) as error:
            await control.load_adapter("bad", path)
        return error.value.status

    def changed(name: str, **values: Any) -> Path:
        copy = tmp_path / name
        copy.mkdir()
        config = json.loads((adapters["one"] / "adapter_config.json").read_bytes())
        (copy / "adapter_config.json").write_text(json.dumps(config | values))
        weights = (adapters["one"] / "adapter_model.safetensors").read_bytes()
        (copy / "adapter_model.safetensors").write_bytes(weights)
        return copy

    assert await refused(tmp_path / "nowhere") == 404
    assert await refused(toy) == 404
    assert await refused(changed("other", peft_type="IA3")) == 400
    assert await refused(changed("rank", r=16)) == 400
    assert await refused(changed("bias", bias="all")) == 400
    broken = changed("broken")
    (broken / "adapter_model.safetensors").write_bytes(b"no tensors")
    assert await refused(broken) == 400
    assert list(await control.loaded_adapters()) == []
    await control.load_adapter("good", adapters["one"])


@pytest.mark.parametrize(
    ("shape", "why"),
    [
        ({"hidden": 128}, "size mismatch for .*lora_A"),
        ({"layers": 3}, "it is for another base, which has .*layers.2"),
        ({"layers": 1}, "it is for another base, which lacks .*layers.1"),
    ],
)
async def test_an_adapter_of_another_base_is_refused_in_words(
    client: AsyncOpenAI,
    control: EngineControl,
    adapters: dict[str, Path],
    tmp_path: Path,
    shape: dict[str, Any],
    why: str,
) -> None:
    await control.load_adapter("one", adapters["one"])
    before = await _say(client, "toy"), await _say(client, "one")
    other = make_model(tmp_path / "other", **shape)
    with pytest.raises(
        EngineError, match=f"The adapter does not fit this model: .*{why}"
    ) as refusal:
        await control.load_adapter("foreign", make_adapter(other, tmp_path / "foreign", seed=1))
    assert refusal.value.status == 400
    assert "\n" not in str(refusal.value)
    assert list(await control.loaded_adapters()) == ["one"]
    assert (await _say(client, "toy"), await _say(client, "one")) == before


async def test_broken_weights_fail_their_own_requests_alone(
    client: AsyncOpenAI, control: EngineControl, adapters: dict[str, Path], tmp_path: Path
) -> None:
    path = tmp_path / "nan"
    shutil.copytree(adapters["one"], path)
    weights = load_file(path / "adapter_model.safetensors")
    broken = {name: torch.full_like(tensor, torch.nan) for name, tensor in weights.items()}
    save_file(broken, path / "adapter_model.safetensors")
    await control.load_adapter("nan", path)
    before = await _say(client, "toy", 100)
    good = asyncio.create_task(_say(client, "toy", 100))
    with pytest.raises(openai.InternalServerError) as failure:
        await client.completions.create(model="nan", prompt=PROMPT, temperature=1, stream=True)
    assert failure.value.code == "engine_error"
    assert await good == before


async def test_an_adapter_with_modules_of_its_own_answers_and_leaves_others_their_place(
    client: AsyncOpenAI,
    control: EngineControl,
    reference: Reference,
    toy: Path,
    adapters: dict[str, Path],
    tmp_path: Path,
) -> None:
    path = make_adapter(
        toy,
        tmp_path / "saved",
        seed=5,
        target_modules=["q_proj", "down_proj"],
        modules_to_save=["lm_head"],
        use_dora=True,
    )
    before = await _say(client, "toy")
    await control.load_adapter("saved", path)
    both = await asyncio.gather(_say(client, "saved"), _say(client, "toy"))
    assert list(both) == [_expected(reference, toy, path), before]
    await control.unload_adapter("saved")
    await control.load_adapter("one", adapters["one"])
    assert await _say(client, "one") == _expected(reference, toy, adapters["one"])
    await control.load_adapter("saved", path)
    await control.unload_adapter("one")
    await control.load_adapter("two", adapters["two"])
    await control.unload_adapter("saved")
    assert await _say(client, "two") == _expected(reference, toy, adapters["two"])
    assert await _say(client, "toy") == before
