"""Estimates of whether a model fits, over how many GPUs, and with which context."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.engine_arguments import EngineArguments
from windlass.modelfiles.footprint import Footprint
from windlass.serving_fit import GIB, LEAST_CONTEXT, DoesNotFit, Fit, fit, fits, least_need

LLAMA_3_8B = Footprint(
    weight_bytes=16_060_522_496, kv_bytes=131_072, windowed_kv_bytes=0, window=0,
    adapter_bytes=5_242_880, heads=32, kv_heads=8, context_length=8192,
)  # fmt: skip
LLAMA_3_70B = Footprint(
    weight_bytes=141_107_412_992, kv_bytes=327_680, windowed_kv_bytes=0, window=0,
    adapter_bytes=25_886_720, heads=64, kv_heads=8, context_length=8192,
)  # fmt: skip


def test_an_8b_model_fits_on_24_gib_and_not_on_16() -> None:
    found = fit(LLAMA_3_8B, devices=1, memory_bytes=24 * GIB)
    assert found.context_length == 8192
    assert 5 < found.requests < 7
    words = r"14\.7 GiB can be used: weights take 15\.0 GiB.* leaves 0\.0 GiB of the 0\.2 GiB"
    with pytest.raises(DoesNotFit, match=words):
        fit(LLAMA_3_8B, devices=1, memory_bytes=16 * GIB)


def test_a_70b_model_needs_two_gpus_of_80_gib_and_its_context_is_cut_to_what_fits() -> None:
    one, two, four = fits(LLAMA_3_70B, devices=4, memory_bytes=80 * GIB)
    assert isinstance(one, DoesNotFit)
    assert isinstance(two, Fit)
    assert isinstance(four, Fit)
    assert two.requests > 3
    assert four.requests > 2 * two.requests
    with_adapters = fit(LLAMA_3_70B, devices=2, memory_bytes=76 * GIB, adapters=2)
    assert LEAST_CONTEXT < with_adapters.context_length < 8192
    assert 1 <= with_adapters.requests < 1.01


def test_over_nodes_each_gpu_has_its_part_of_the_layers() -> None:
    with pytest.raises(DoesNotFit, match="weights take"):
        fit(LLAMA_3_70B, devices=4, memory_bytes=36 * GIB, adapters=4)
    two = fit(LLAMA_3_70B, devices=4, memory_bytes=36 * GIB, adapters=4, nodes=2)
    one = fit(LLAMA_3_70B, devices=8, memory_bytes=36 * GIB)
    # No adapters are loaded there.
    assert (two.devices, two.adapter_bytes) == (8, 0)
    assert two.weight_bytes == one.weight_bytes
    # Eight heads of keys are divided over eight GPUs either way.
    assert two.requests == pytest.approx(one.requests, rel=0.01)
    flat = EngineArguments(tensor_parallel=2, pipeline_parallel=2)
    with pytest.raises(DoesNotFit, match=r"is 4; the engine has 8 GPUs \(2 nodes with 4 each\)"):
        fit(LLAMA_3_70B, devices=4, memory_bytes=36 * GIB, arguments=flat, nodes=2)


def test_what_is_asked_for_is_held_to() -> None:
    asked = EngineArguments(context_length=4096, kv_cache_dtype="fp8")
    found = fit(LLAMA_3_8B, devices=1, memory_bytes=24 * GIB, arguments=asked)
    plain = fit(LLAMA_3_8B, devices=1, memory_bytes=24 * GIB)
    assert found.context_length == 4096
    assert found.requests == pytest.approx(plain.requests * 4)
    small = EngineArguments(context_length=8192, kv_cache_bytes=2**29)
    with pytest.raises(DoesNotFit, match=r"leaves 0\.5 GiB of the 1\.0 GiB that 8192 tokens"):
        fit(LLAMA_3_8B, devices=1, memory_bytes=24 * GIB, arguments=small)


def test_weights_and_keys_are_as_wide_as_the_engine_holds_them() -> None:
    known = replace(LLAMA_3_8B, weight_width=2)
    plain = fit(known, devices=1, memory_bytes=48 * GIB)
    wide = fit(known, devices=1, memory_bytes=48 * GIB, arguments=EngineArguments(dtype="float32"))
    assert plain.weight_bytes == known.weight_bytes == wide.weight_bytes // 2
    assert plain.requests / plain.cache_bytes == pytest.approx(2 * wide.requests / wide.cache_bytes)
    # Of 32 bits in the files an engine for GPUs makes 16.
    halved = fit(replace(known, weight_width=4), devices=1, memory_bytes=24 * GIB)
    assert halved.weight_bytes == known.weight_bytes // 2
    # Quantized weights stay as they are, and so do those that nobody looked at.
    asked = EngineArguments(dtype="float32", kv_cache_dtype="fp8")
    kept = fit(LLAMA_3_8B, devices=1, memory_bytes=24 * GIB, arguments=asked)
    assert kept.weight_bytes == LLAMA_3_8B.weight_bytes


def test_what_is_needed_for_sure_is_less_than_the_estimate() -> None:
    found = least_need(LLAMA_3_8B)
    assert (found.tokens, found.cache_bytes) == (LEAST_CONTEXT, LEAST_CONTEXT * 131_072)
    assert found.total == LLAMA_3_8B.weight_bytes + found.cache_bytes + GIB // 2
    with pytest.raises(DoesNotFit):
        fit(LLAMA_3_8B, devices=1, memory_bytes=found.total)
    whole = least_need(LLAMA_3_8B, arguments=EngineArguments(context_length=8192))
    assert whole.cache_bytes == 4 * found.cache_bytes
    both = least_need(LLAMA_3_8B, draft=LLAMA_3_1B)
    assert both.draft_bytes == LLAMA_3_1B.weight_bytes
    assert both.weight_bytes == LLAMA_3_8B.weight_bytes + both.draft_bytes
    # One that makes vectors keeps no keys.
    assert least_need(LLAMA_3_8B, arguments=EngineArguments(task="embed")).cache_bytes == 0
    asked = EngineArguments(kv_cache_bytes=2 * GIB)
    assert least_need(LLAMA_3_8B, arguments=asked).cache_bytes == 2 * GIB


LLAMA_3_1B = Footprint(
    weight_bytes=2_471_645_608, kv_bytes=32_768, windowed_kv_bytes=0, window=0,
    adapter_bytes=1_507_328, heads=32, kv_heads=8, context_length=131_072,
)  # fmt: skip


def test_a_draft_takes_room_for_its_weights_and_its_keys() -> None:
    plain = fit(LLAMA_3_8B, devices=1, memory_bytes=24 * GIB)
    found = fit(LLAMA_3_8B, devices=1, memory_bytes=24 * GIB, draft=LLAMA_3_1B)
    assert found.draft_bytes == LLAMA_3_1B.weight_bytes
    assert found.cache_bytes == plain.cache_bytes - LLAMA_3_1B.weight_bytes
    per_token = LLAMA_3_8B.kv_bytes + LLAMA_3_1B.kv_bytes
    assert found.requests == pytest.approx(found.cache_bytes / (8192 * per_token), rel=0.01)
    assert found.context_length == 8192, "the model's own"
    with pytest.raises(DoesNotFit, match=r"weights take 15\.0 GiB, those of the draft 2\.3 GiB"):
        fit(LLAMA_3_8B, devices=1, memory_bytes=20 * GIB, draft=LLAMA_3_1B)
    two = fit(LLAMA_3_8B, devices=2, memory_bytes=20 * GIB, draft=LLAMA_3_1B)
    assert two.draft_bytes == LLAMA_3_1B.weight_bytes // 2
    odd = replace(LLAMA_3_1B, heads=9)
    with pytest.raises(DoesNotFit, match="draft model's 9 attention heads"):
        fit(LLAMA_3_8B, devices=2, memory_bytes=20 * GIB, draft=odd)


def test_heads_that_cannot_be_divided_are_said() -> None:
    with pytest.raises(DoesNotFit, match="32 attention heads cannot be divided over 3 GPUs"):
        fit(LLAMA_3_8B, devices=3, memory_bytes=24 * GIB)


FOOTPRINTS = st.builds(
    Footprint,
    weight_bytes=st.integers(0, 2**40), kv_bytes=st.integers(0, 2**20),
    windowed_kv_bytes=st.integers(0, 2**20), window=st.integers(0, 2**16),
    adapter_bytes=st.integers(0, 2**24), heads=st.sampled_from([8, 16, 64]),
    kv_heads=st.sampled_from([1, 2, 8]), context_length=st.integers(1, 2**20),
)  # fmt: skip


@given(FOOTPRINTS, st.sampled_from([1, 2, 4, 8]), st.integers(0, 2**38), st.integers(0, 8))
def test_more_memory_never_fits_worse_and_one_request_always_fits(
    model: Footprint, devices: int, spare: int, adapters: int
) -> None:
    memory = int((model.weight_bytes / devices + 3 * GIB + spare) / 0.92) + 1
    try:
        found = fit(model, devices=devices, memory_bytes=memory, adapters=adapters)
    except DoesNotFit:
        assert model.adapter_bytes * adapters or spare < model.request_bytes(LEAST_CONTEXT)
        return
    assert 1 <= found.context_length <= model.context_length
    assert found.requests >= 1 or found.cache_bytes == 0
    more = fit(model, devices=devices, memory_bytes=2 * memory, adapters=adapters)
    assert more.context_length >= found.context_length
    fewer = fit(model, devices=devices, memory_bytes=memory, adapters=0)
    assert fewer.cache_bytes >= found.cache_bytes
