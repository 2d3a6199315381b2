"""Pages of engines for Prometheus, read as one schema whatever is on them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.api.keeper.v1 import keeper_pb2
from windlass.metrics.agent import ENGINE_REQUESTS, ENGINE_TOKENS
from windlass_agent.engines import builtin_engine, llamacpp_engine, vllm_engine
from windlass_agent.engines.load import EngineLoad, load_of, load_page
from windlass_agent.engines.sglang import kind as sglang
from windlass_agent.executors.measuring import show_engines

# Of real pages, shortened.
VLLM = """# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_waiting{engine="0",model_name="m"} 2.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="capacity"} 2.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.75
vllm:prompt_tokens_total{engine="0",model_name="m"} 1000.0
vllm:prompt_tokens_total{engine="1",model_name="m"} 24.0
vllm:prompt_tokens_created{engine="0",model_name="m"} 1.7e+09
vllm:prompt_tokens_cached_total{engine="0",model_name="m"} 400.0
vllm:generation_tokens_total{engine="0",model_name="m"} 77.0
vllm:request_success_total{engine="0",finished_reason="stop",model_name="m"} 5.0
vllm:request_success_total{engine="0",finished_reason="abort",model_name="m"} 2.0
"""
LLAMACPP = """# TYPE llamacpp:prompt_tokens_total counter
llamacpp:prompt_tokens_total 60
llamacpp:prompt_tokens_cached_total 40
llamacpp:tokens_predicted_total 9
llamacpp:requests_processing 1
llamacpp:requests_deferred 0
"""
# With priorities, requests that are open are counted twice, tokens once.
SGLANG = """sglang:num_running_reqs{model_name="base",priority="",tp_rank="0"} 3.0
sglang:num_running_reqs{model_name="base",priority="0",tp_rank="0"} 2.0
sglang:num_running_reqs{model_name="base",priority="10",tp_rank="0"} 1.0
sglang:num_queue_reqs{model_name="base",priority="",tp_rank="0"} 1.0
sglang:num_queue_reqs{model_name="base",priority="10",tp_rank="0"} 1.0
sglang:token_usage{model_name="base",tp_rank="0"} 0.25
sglang:prompt_tokens_total{is_streaming="true",model_name="base",priority="0"} 60.0
sglang:prompt_tokens_total{is_streaming="false",model_name="base",priority="10"} 40.0
sglang:cached_tokens_total{model_name="base",cache_source="device"} 30.0
sglang:cached_tokens_total{model_name="base",cache_source="host"} 10.0
sglang:generation_tokens_total{model_name="base"} 9.0
"""
BUILTIN = """windlass_engine_sequences_running 1.0
windlass_engine_sequences_waiting 4.0
windlass_engine_prompt_tokens_total 12.0
windlass_engine_generated_tokens_total 30.0
"""


def test_the_pages_of_all_kinds_say_the_same() -> None:
    assert vllm_engine.LOAD_NAMES.read(VLLM) == EngineLoad(
        running=3, waiting=2, cache_used=0.5,
        prompt_tokens=1024, cached_tokens=400, generated_tokens=77, finished_requests=7,
    )  # fmt: skip
    assert llamacpp_engine.LOAD_NAMES.read(LLAMACPP) == EngineLoad(
        running=1, prompt_tokens=100, cached_tokens=40, generated_tokens=9
    )
    assert sglang.LOAD_NAMES.read(SGLANG) == EngineLoad(
        running=3, waiting=1, cache_used=0.25,
        prompt_tokens=100, cached_tokens=40, generated_tokens=9,
    )  # fmt: skip
    assert builtin_engine.LOAD_NAMES.read(BUILTIN) == EngineLoad(
        running=1, waiting=4, prompt_tokens=12, generated_tokens=30
    )


def test_a_picker_reads_what_a_keeper_tells_as_vllm_s() -> None:
    load = EngineLoad(running=3, waiting=2, cache_used=0.5, finished_requests=0)
    assert vllm_engine.LOAD_NAMES.read(load_page(load)) == load
    assert load_page(EngineLoad()).endswith("\nvllm:kv_cache_usage_perc 0.0\n")
    assert load_page(None) == ""


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-5", "1e300"])
def test_nonsense_stays_within_bounds(value: str) -> None:
    page = BUILTIN.replace("12.0", value).replace("30.0", value)
    found = builtin_engine.LOAD_NAMES.read(page)
    assert 0 <= found.prompt_tokens <= 2**53
    said = keeper_pb2.EngineLoad(running=-1, cache_used=float("nan"), prompt_tokens=2**60)
    assert load_of(said) == EngineLoad(prompt_tokens=2**53)
    assert load_of(keeper_pb2.EngineLoad(cache_used=7)).cache_used == 1.0
    said = keeper_pb2.EngineLoad(wait_seconds=-1.0, finished_requests=-1)
    assert load_of(said) == EngineLoad(wait_seconds=0.0, finished_requests=0)
    assert load_of(keeper_pb2.EngineLoad(wait_seconds=float("inf"))).wait_seconds == 0.0


@given(st.text(max_size=200))
def test_what_is_no_page_is_refused_as_such(text: str) -> None:
    page = "".join(f"windlass_engine_sequences_running{text}\n")
    try:
        builtin_engine.LOAD_NAMES.read(page)
    except ValueError:
        return


def samples(metric: object) -> dict[tuple[str, ...], float]:
    (family,) = metric.collect()  # type: ignore[attr-defined]  # of the library, without types
    return {tuple(one.labels.values()): one.value for one in family.samples}


def test_what_is_shown_is_of_engines_that_serve_and_no_others() -> None:
    spec = pb.EngineWorkload(engine="vllm", model='a"b\n')
    wanted = {"eng-1": pb.Workload(id="eng-1", project_id="p", engine=spec)}
    labels = ("eng-1", "vllm", 'a"b\n', "p")
    for generated in (5, 12):
        load = EngineLoad(running=1, generated_tokens=generated)
        show_engines({"eng-1": load, "eng-unknown": load}, wanted)
        assert samples(ENGINE_REQUESTS) == {(*labels, "running"): 1, (*labels, "waiting"): 0}
        assert samples(ENGINE_TOKENS)[*labels, "generated"] == generated
    show_engines({}, wanted)
    assert not samples(ENGINE_REQUESTS)
    assert not samples(ENGINE_TOKENS)
