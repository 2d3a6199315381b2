"""Vectors are the mean of the last hidden states, of length one."""

from typing import Any

import pytest
import torch
from openai import AsyncOpenAI, BadRequestError
from tests.integration.engines.reference import Reference

pytestmark = pytest.mark.torch


async def test_vectors_are_the_mean_of_the_last_hidden_states(
    client: AsyncOpenAI, reference: Reference
) -> None:
    texts = ["a", "the quick brown fox jumps", "red " * 40, *["fox"] * 8]
    answer = await client.embeddings.create(model="toy", input=texts, encoding_format="float")
    assert [item.index for item in answer.data] == list(range(len(texts)))
    for text, item in zip(texts, answer.data, strict=True):
        ids = torch.tensor([reference.tokenizer.encode(text)])
        mean = reference.network.model(ids).last_hidden_state[0].mean(0)
        expected = torch.nn.functional.normalize(mean, dim=0).tolist()
        assert item.embedding == pytest.approx(expected, abs=1e-4)
    count = sum(len(reference.tokenizer.encode(text)) for text in texts)
    assert answer.usage.prompt_tokens == answer.usage.total_tokens == count


async def test_every_form_of_input_and_output_is_the_same_vector(
    client: AsyncOpenAI, reference: Reference
) -> None:
    ids = reference.tokenizer.encode("lazy dog")
    plain = await client.embeddings.create(model="toy", input="lazy dog", encoding_format="float")
    for given in ("lazy dog", ["lazy dog"], ids, [ids]):
        # Without a format the client asks for base64 and unpacks it.
        packed = await client.embeddings.create(model="toy", input=given)
        assert packed.data[0].embedding == pytest.approx(plain.data[0].embedding, abs=1e-6)


@pytest.mark.parametrize(
    ("extra", "param"),
    [
        ({"dimensions": 8}, "dimensions"),
        ({"input": []}, "input"),
        ({"input": ""}, "input"),
        ({"input": ["a", 3]}, "input"),
        ({"input": [999999]}, "input"),
        ({"input": "fox " * 600}, "input"),
        ({"encoding_format": "int8"}, "encoding_format"),
    ],
)
async def test_what_cannot_be_embedded_is_refused_by_name(
    client: AsyncOpenAI, extra: dict[str, Any], param: str
) -> None:
    with pytest.raises(BadRequestError) as refusal:
        await client.embeddings.create(**{"model": "toy", "input": "a", **extra})
    assert refusal.value.param == param
