"""Traits of an adapter, whatever its configuration says, and who loads it."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.modelfiles.adapter_traits import (
    FEATURES,
    AdapterTraits,
    adapter_traits,
    refusal,
)
from windlass_agent.gguf import adapter_file

HELD: dict[str, Any] = {
    "use_dora": True,
    "modules_to_save": ["lm_head"],
    "trainable_token_indices": [1],
    "bias": "lora_only",
    "rank_pattern": {"q_proj": 32},
    "alpha_pattern": {"q_proj": 2.0},
}
# Of the layers that it changes, and no setting of its own.
EMBEDDINGS: dict[str, Any] = {"target_modules": ["q_proj", "embed_tokens"]}
VALUES = st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5))
ANYTHING = st.recursive(VALUES, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner))


def traits(**config: Any) -> AdapterTraits | None:
    return adapter_traits(json.dumps({"peft_type": "LORA", "r": 8, **config}).encode())


def test_a_plain_adapter_is_loaded_by_all() -> None:
    plain = traits(bias="none", use_dora=False, modules_to_save=None, rank_pattern={})
    assert plain == AdapterTraits(8)
    assert not any(
        refusal(engine, plain, 64) for engine in ("builtin", "vllm", "llamacpp", "sglang")
    )


def test_every_feature_is_found_and_said() -> None:
    assert {*HELD, "embed_tokens"} == FEATURES.keys()
    for name, value in HELD.items():
        found = traits(**{name: value})
        assert found is not None
        assert found.features == (name,)
        assert FEATURES[name] in refusal("llamacpp", found, 0)
        assert FEATURES[name] in refusal("sglang", found, 64)
        assert bool(refusal("builtin", found, 0)) == (name == "bias")
        is_pattern = name.endswith("_pattern")
        assert bool(refusal("vllm", found, 64)) is not is_pattern


def test_the_highest_rank_counts() -> None:
    found = traits(rank_pattern={"q_proj": 96, "k_proj": "x", "v_proj": -1})
    assert found == AdapterTraits(96, ("rank_pattern",))
    assert refusal("vllm", found, 64) == "its rank of 96 is more than the engine's 64"
    assert not refusal("vllm", found, 96)


def test_the_head_of_a_reward_model_is_no_layer_of_its_own() -> None:
    assert traits(task_type="SEQ_CLS", modules_to_save=["score"]) == AdapterTraits(8)
    more = traits(task_type="SEQ_CLS", modules_to_save=["score", "lm_head"])
    assert more == AdapterTraits(8, ("modules_to_save",))


def test_llama_cpp_is_said_to_refuse_what_its_files_cannot_hold() -> None:
    assert FEATURES.keys() == {*adapter_file.REFUSED, "bias", "embed_tokens"}
    found = traits(**EMBEDDINGS)
    assert found == AdapterTraits(8, ("embed_tokens",))
    assert refusal("llamacpp", found, 0) == "it is an adapter of the embeddings"
    assert not refusal("vllm", found, 64)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"{",
        b'{"peft_type": "IA3"}',
        b"[" * 100_000,
        b'{"peft_type": "LORA", "x": "\xff"}',
    ],
)
def test_what_is_no_lora_has_none(content: bytes) -> None:
    assert adapter_traits(content) is None


@given(st.dictionaries(st.sampled_from(["r", "task_type", "target_modules", *HELD]), ANYTHING))
def test_whatever_is_written_there_the_traits_are_ours(config: dict[str, Any]) -> None:
    found = traits(**config)
    assert found is not None
    assert set(found.features) <= FEATURES.keys()
    assert 0 <= found.rank <= 2**16
