"""Engine output equals the model's, however requests are batched."""

import asyncio
from typing import Any

import pytest
import torch
from openai import AsyncOpenAI
from tests.integration.engines.reference import Reference
from tests.support.processes.engine import RunningEngine

pytestmark = pytest.mark.torch

HELLO: list[Any] = [{"role": "user", "content": "hello fox"}]


async def test_greedy_is_generates_token_for_token_in_a_changing_batch(
    client: AsyncOpenAI, reference: Reference
) -> None:
    texts = ["a", "the quick brown fox", "red green", "lazy dog " * 30, "naïve 日本", "x" * 300]
    prompts = [reference.tokenizer.encode(text) for text in texts]
    lengths = [60, 15, 40, 25, 90, 5]

    async def ask(prompt: list[int], length: int) -> Any:
        return await client.completions.create(
            model="toy", prompt=prompt, max_tokens=length, temperature=0
        )

    # Twice, so that later ones join a batch whose earlier ones have left.
    work = list(zip(prompts, lengths, strict=True)) * 2
    answers = await asyncio.gather(*[ask(prompt, length) for prompt, length in work])
    for (prompt, length), answer in zip(work, answers, strict=True):
        expected = reference.greedy(prompt, length)
        assert answer.choices[0].text == reference.text(expected)
        assert answer.usage.completion_tokens == len(expected)
        assert answer.usage.prompt_tokens == len(prompt)


async def test_a_stream_says_the_same_with_exact_usage_in_every_chunk(
    client: AsyncOpenAI, engine: RunningEngine, reference: Reference
) -> None:
    prompt = reference.chat(HELLO)
    expected = reference.greedy(prompt, 30)
    options: Any = {"include_usage": True, "continuous_usage_stats": True}
    times = ("first_token_seconds_count", "inter_token_seconds_count")
    before = [engine.metric(name) for name in times]
    stream = await client.chat.completions.create(
        model="toy",
        messages=HELLO,
        max_completion_tokens=30,
        temperature=0,
        stream=True,
        stream_options=options,
    )
    chunks = [chunk async for chunk in stream]
    usages = [chunk.usage for chunk in chunks]
    assert all(usage and usage.prompt_tokens == len(prompt) for usage in usages)
    counts = [usage.completion_tokens for usage in usages if usage]
    # The role's chunk comes with the first token's, the last has no choices.
    assert counts == [1, *range(1, len(expected) + 1), len(expected)]
    assert chunks[0].choices[0].delta.role == "assistant"
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1])
    assert text == reference.text(expected)
    assert not chunks[-1].choices
    assert chunks[-2].choices[0].finish_reason == "length"
    grown = [engine.metric(name) - old for name, old in zip(times, before, strict=True)]
    assert grown == [1, len(expected) - 1]


async def test_a_stop_sequence_ends_the_text_before_it_even_across_tokens(
    client: AsyncOpenAI, reference: Reference
) -> None:
    prompt = reference.tokenizer.encode("the lazy")
    whole = reference.text(reference.greedy(prompt, 60))
    stop = whole[20:25]
    expected = whole[: whole.index(stop)]
    arguments: dict[str, Any] = {
        "model": "toy",
        "prompt": prompt,
        "max_tokens": 60,
        "temperature": 0,
        "stop": ["never said", stop],
    }
    answer = await client.completions.create(**arguments)
    assert (answer.choices[0].text, answer.choices[0].finish_reason) == (expected, "stop")
    assert answer.usage
    assert answer.usage.completion_tokens < 60
    stream = await client.completions.create(**arguments, stream=True)
    assert "".join([chunk.choices[0].text async for chunk in stream]) == expected


async def test_an_end_token_ends_unless_ignored_or_too_early(
    client: AsyncOpenAI, reference: Reference
) -> None:
    eos = reference.tokenizer.eos_token_id

    async def ask(**extra: Any) -> tuple[str, int]:
        answer = await client.completions.create(
            model="toy",
            prompt="fox",
            max_tokens=5,
            temperature=0,
            logit_bias={str(eos): 100},
            extra_body=extra,
        )
        assert answer.usage
        return answer.choices[0].finish_reason, answer.usage.completion_tokens

    assert await ask() == ("stop", 1)
    assert await ask(min_tokens=3) == ("stop", 4)
    assert await ask(ignore_eos=True) == ("length", 5)


async def test_a_seed_repeats_and_each_choice_is_its_own(client: AsyncOpenAI) -> None:
    async def ask(seed: int) -> list[str | None]:
        answer = await client.chat.completions.create(
            model="toy",
            messages=HELLO,
            n=3,
            seed=seed,
            temperature=1.5,
            top_p=0.95,
            max_tokens=20,
        )
        assert [choice.index for choice in answer.choices] == [0, 1, 2]
        return [choice.message.content for choice in answer.choices]

    first, again, other = await asyncio.gather(ask(7), ask(7), ask(99))
    assert first == again
    assert first != other
    assert len(set(first)) == 3


async def test_logprobs_are_the_models(client: AsyncOpenAI, reference: Reference) -> None:
    prompt = reference.chat(HELLO)
    answer = await client.chat.completions.create(
        model="toy",
        messages=HELLO,
        max_tokens=5,
        temperature=0,
        logprobs=True,
        top_logprobs=2,
    )
    assert answer.choices[0].logprobs
    reported = answer.choices[0].logprobs.content or []
    ids = reference.greedy(prompt, 5)
    logits = reference.network(torch.tensor([prompt + ids])).logits[0, len(prompt) - 1 : -1]
    expected = torch.log_softmax(logits.detach(), -1)
    assert [one.logprob for one in reported] == pytest.approx(
        [float(row[token]) for row, token in zip(expected, ids, strict=True)], abs=1e-3
    )
    for one, row in zip(reported, expected, strict=True):
        best = row.topk(2).values.tolist()
        assert [top.logprob for top in one.top_logprobs] == pytest.approx(best, abs=1e-3)
    joined = bytes(byte for one in reported for byte in one.bytes or [])
    assert joined.decode(errors="replace").rstrip("\ufffd") == reference.text(ids)


async def test_echo_scores_the_prompt(client: AsyncOpenAI, reference: Reference) -> None:
    ids = reference.tokenizer.encode("the quick brown fox")
    answer = await client.completions.create(
        model="toy", prompt="the quick brown fox", max_tokens=0, echo=True, logprobs=1
    )
    choice = answer.choices[0]
    assert choice.text == "the quick brown fox"
    assert choice.logprobs
    logits = reference.network(torch.tensor([ids])).logits[0].detach()
    scores = torch.log_softmax(logits, -1)
    expected = [float(scores[at, token]) for at, token in enumerate(ids[1:])]
    given = choice.logprobs.token_logprobs or []
    assert given[0] is None
    assert given[1:] == pytest.approx(expected, abs=1e-3)
    assert answer.usage
    assert answer.usage.completion_tokens == 0


async def test_several_prompts_answer_in_order(client: AsyncOpenAI, reference: Reference) -> None:
    prompts = ["red", "lazy dog", "brown"]
    answer = await client.completions.create(
        model="toy", prompt=prompts, max_tokens=8, temperature=0
    )
    expected = [
        reference.text(reference.greedy(reference.tokenizer.encode(prompt), 8))
        for prompt in prompts
    ]
    assert [choice.text for choice in answer.choices] == expected


async def test_parts_and_tools_reach_the_template(
    client: AsyncOpenAI, reference: Reference
) -> None:
    tool: Any = {
        "type": "function",
        "function": {"name": "weather", "parameters": {"type": "object"}},
    }
    call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    messages: list[Any] = [
        {"role": "user", "content": [{"type": "text", "text": "hello "}, _text("fox")]},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
    ]
    answer = await client.chat.completions.create(
        model="toy",
        messages=messages,
        max_tokens=1,
        tools=[tool],
    )
    plain = [
        {"role": "user", "content": "hello fox"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"function": {"name": "weather", "arguments": {}}}],
        },
        {"role": "tool", "content": "sunny"},
    ]
    text = reference.tokenizer.apply_chat_template(
        plain, tools=[tool], tokenize=False, add_generation_prompt=True
    )
    assert answer.usage
    assert answer.usage.prompt_tokens == len(reference.tokenizer.encode(text))


def _text(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}
