"""Memory that well-known shapes of models take; the figures are those of their papers and cards."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.modelfiles.footprint import Footprint, footprint

LLAMA_3_8B = {
    "model_type": "llama", "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "hidden_size": 4096, "intermediate_size": 14336,
    "max_position_embeddings": 8192,
}  # fmt: skip


def of(config: Any, **more: Any) -> Footprint:
    return footprint({**config, **more}, 16_060_522_496)


def test_grouped_queries_take_128_kib_a_token() -> None:
    found = of(LLAMA_3_8B)
    assert found.kv_bytes == 128 * 1024
    assert (found.windowed_kv_bytes, found.window) == (0, 0)
    assert (found.heads, found.kv_heads, found.context_length) == (32, 8, 8192)
    assert found.request_bytes(8192) == 2**30
    # PEFT: 41,943,040 parameters for rank 16 on all linear layers.
    assert found.adapter_bytes * 16 == 41_943_040 * 2


def test_older_names_mean_the_same() -> None:
    gpt2 = {"n_layer": 12, "n_head": 12, "n_embd": 768, "n_positions": 1024}
    found = of(gpt2)
    assert (found.kv_bytes, found.kv_heads, found.context_length) == (36_864, 12, 1024)
    assert of({**gpt2, "multi_query": True}).kv_bytes == 36_864 // 12


def test_latent_attention_keeps_one_vector_that_cannot_be_divided() -> None:
    deepseek_v2_lite = {
        "num_hidden_layers": 27, "num_attention_heads": 16, "num_key_value_heads": 16,
        "hidden_size": 2048, "max_position_embeddings": 163_840, "kv_lora_rank": 512,
        "qk_rope_head_dim": 64,
    }  # fmt: skip
    found = of(deepseek_v2_lite)
    assert (found.kv_bytes, found.kv_heads) == (27 * 576 * 2, 1)


@pytest.mark.parametrize(
    "name", ["num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"]
)
def test_experts_are_counted_by_the_names_of_their_authors(name: str) -> None:
    assert of(LLAMA_3_8B).experts == 1, "none are one network for all tokens"
    assert of(LLAMA_3_8B, **{name: 64}).experts == 64
    assert of({"text_config": {**LLAMA_3_8B, name: 8}}).experts == 8


def test_a_window_bounds_what_a_request_takes() -> None:
    mistral = of(LLAMA_3_8B, sliding_window=4096, max_position_embeddings=32768)
    assert (mistral.kv_bytes, mistral.windowed_kv_bytes) == (0, 128 * 1024)
    assert mistral.request_bytes(32768) == mistral.request_bytes(4096) == 2**29
    # Qwen's documents have a window that is not used.
    assert of(LLAMA_3_8B, sliding_window=4096, use_sliding_window=False).window == 0


def test_layers_with_a_window_are_counted_by_their_types() -> None:
    gemma_2_9b = {
        "model_type": "gemma2", "num_hidden_layers": 42, "num_attention_heads": 16,
        "num_key_value_heads": 8, "head_dim": 256, "hidden_size": 3584, "sliding_window": 4096,
        "max_position_embeddings": 8192,
    }  # fmt: skip
    by_pattern = of(gemma_2_9b)
    types = ["sliding_attention", "full_attention"] * 21
    by_types = of(gemma_2_9b, model_type="other", layer_types=types)
    assert by_pattern.kv_bytes == by_types.kv_bytes == 21 * 8192
    assert by_pattern.windowed_kv_bytes == by_types.windowed_kv_bytes == 21 * 8192
    hybrid = of(LLAMA_3_8B, layer_types=["linear_attention"] * 24 + ["full_attention"] * 8)
    assert hybrid.kv_bytes == 32 * 1024


def test_a_model_of_images_and_text_is_taken_for_its_text() -> None:
    assert of({"model_type": "both", "text_config": LLAMA_3_8B}) == of(LLAMA_3_8B)


@pytest.mark.parametrize("missing", ["num_hidden_layers", "hidden_size", "num_attention_heads"])
def test_what_is_not_said_is_named(missing: str) -> None:
    config = {key: value for key, value in LLAMA_3_8B.items() if key != missing}
    with pytest.raises(ValueError, match=missing):
        of(config)


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.text(max_size=3),
    st.lists(st.text(max_size=3), max_size=3), st.floats(),
)  # fmt: skip


@given(st.dictionaries(st.sampled_from([*LLAMA_3_8B, "sliding_window", "layer_types"]), VALUES))
def test_no_document_is_a_fault(config: dict[str, Any]) -> None:
    try:
        found = of(LLAMA_3_8B | config)
    except ValueError:
        return
    assert found.context_length <= 2**24
    assert found.window <= 2**24
