"""The padded cache serves every kind of attention that the engine accepts."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tests.support.factories.toy_model import make_tokenizer

from windlass.inference_api.requests import SamplingParams
from windlass_agent.engines.builtin.generation.lane import Lane, Prefill
from windlass_agent.engines.builtin.generation.loading import UnsupportedModel, load_model
from windlass_agent.engines.builtin.generation.model import LoadedModel
from windlass_agent.engines.builtin.generation.sequence import Sequence
from windlass_agent.engines.builtin.text.detokenize import Detokenizer

pytestmark = pytest.mark.torch

SMALL = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 256,
    "initializer_range": 0.3,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": 0,
}
KINDS: dict[str, dict[str, Any]] = {
    "Qwen3": SMALL,
    "Mistral": SMALL | {"sliding_window": 16},
    "Gemma3Text": SMALL
    | {"sliding_window": 16, "layer_types": ["sliding_attention", "full_attention"]},
    "GPT2": {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 256, "initializer_range": 0.3},
    "OPT": {"hidden_size": 32, "ffn_dim": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    | {"word_embed_proj_dim": 32, "max_position_embeddings": 256, "init_std": 0.3},
}


def _load(kind: str, path: Path) -> LoadedModel:
    tokenizer = make_tokenizer(None)
    torch.manual_seed(1)
    config = getattr(transformers, f"{kind}Config")(**KINDS[kind], vocab_size=len(tokenizer))
    config.eos_token_id = config.bos_token_id = None
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return load_model(path, name=kind)


def _sequence(model: LoadedModel, prompt: list[int], tokens: int) -> Sequence:
    return Sequence(
        prompt=prompt,
        params=SamplingParams(max_tokens=tokens, temperature=0),
        index=0,
        adapter=None,
        eos=frozenset(),
        detokenizer=Detokenizer(model.tokenizer.decode),
        sink=asyncio.Queue(),
        generator=torch.Generator(),
    )


def _generate(model: LoadedModel, prompt: list[int], tokens: int) -> list[int]:
    ids = torch.tensor([prompt])
    output = model.network.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        do_sample=False,
        max_new_tokens=tokens,
        eos_token_id=None,
        pad_token_id=0,
    )
    return list(output[0, len(prompt) :].tolist())


@pytest.mark.parametrize("kind", KINDS)
def test_joining_and_leaving_rows_say_what_generate_says(kind: str, tmp_path: Path) -> None:
    model = _load(kind, tmp_path)
    lane = Lane(model, None)
    work = [(list(range(5, 5 + size)), tokens) for size, tokens in [(3, 40), (60, 9), (20, 70)]]
    sequences = [_sequence(model, *one) for one in work]
    with torch.inference_mode():
        for sequence in sequences:
            prefill = Prefill(model, sequence)
            # In two chunks, as a long prompt is.
            _, first = prefill.advance(2)
            assert first is None
            prefill.advance(1000)
            lane.join(prefill)
            for _ in range(5):
                lane.step()
        for _ in range(80):
            lane.step()
    for sequence, (prompt, tokens) in zip(sequences, work, strict=True):
        assert sequence.generated == _generate(model, prompt, tokens)


def test_a_model_that_cannot_be_served_is_refused_with_its_reason(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel):
        load_model(tmp_path, name="empty")
    config = transformers.Qwen3NextConfig(
        vocab_size=400, hidden_size=64, num_hidden_layers=4, layer_types=["linear_attention"] * 4
    )
    config.save_pretrained(tmp_path)
    with pytest.raises(UnsupportedModel, match="linear_attention"):
        load_model(tmp_path, name="linear")
