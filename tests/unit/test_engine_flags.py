"""Flags of the operator's for vLLM and SGLang: what is taken, and what is refused with a reason."""

from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import TypeAdapter, ValidationError

from windlass.engine_arguments import EngineArguments
from windlass.engine_flags import OURS, UNSAFE, EngineFlags, check_flag, check_sglang_flag, lightens
from windlass_agent.config import AgentSettings
from windlass_agent.engines.port import EngineSpec
from windlass_agent.engines.sglang.kind import SglangEngine
from windlass_agent.engines.vllm_engine import VllmEngine

FLAGS = TypeAdapter(EngineFlags)
TAKEN = (
    "--seed=7", "--attention-backend=FLASHINFER", "--async-scheduling", "--no-async-scheduling",
    "--enable-eplb", "--compilation-config.mode=0", "--model-impl=transformers",
    "--tokenizer-mode=slow", '--limit-mm-per-prompt={"image": 0}',
)  # fmt: skip


def test_flags_come_behind_ours_word_for_word() -> None:
    engine = VllmEngine(Path("/python"), FLAGS.validate_python(TAKEN))
    words = engine.command(EngineSpec(model_dir=Path("/m"), served_name="m", endpoint="unix:///s"))
    assert [word for word in words if word in TAKEN] == list(TAKEN)
    # Behind all of ours, none of which can be taken for a value of theirs.
    assert tuple(words[-len(TAKEN) :]) == TAKEN


@pytest.mark.parametrize(
    ("flag", "reason"),
    [
        ("seed", "no flag"),
        ("-tp=2", "no flag"),
        ("--seed 7", "no flag"),
        ("--seed=7\n--x", "no flag"),
        ("--", "no flag"),
        ("--default-chat-template-kwargs.enable_thinking", "no flag"),
        ("--model=/other", "written by Windlass"),
        ("--no-enable-lora", "written by Windlass"),
        ("--max_model_len=3", "written by Windlass"),
        ("--served-model", "written by Windlass"),
        ("--structured-outputs-config.backend=x", "written by Windlass"),
        ("--trust-remote-code", "run code"),
        ("--trust_remote", "run code"),
        ("--enable-log-requests", "log prompts"),
        ("--config=/etc/flags.yaml", "run code"),
        ('--kv-events-config={"enable_kv_cache_events": true}', "log prompts"),
        ("--enable-prompt-embeds", "run code"),
    ],
)
def test_what_is_refused_says_why(flag: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        check_flag(flag)
    with pytest.raises(ValidationError, match=r"vllm_flags\.0"):
        AgentSettings(vllm_flags=(flag,))


def test_whatever_we_write_is_known_as_ours() -> None:
    whole = EngineArguments(
        context_length=64, max_concurrency=2, dtype="auto", tensor_parallel=1,
        pipeline_parallel=2, memory_fraction=0.5, kv_cache_bytes=2**20, kv_cache_dtype="auto",
        prefix_caching=True, chunked_prefill=True,
        max_batched_tokens=64, kv_offload_bytes=2**30, lookup_tokens=2, max_adapter_rank=8,
        tool_parser="hermes", reasoning_parser="qwen3", eager=True, task="generate",
        draft_model="small", draft_tokens=2,
        expert_parallel=True,
    )  # fmt: skip
    assert not [name for name, value in whole if value is None]
    written = set()
    for endpoint in ("unix:///s", "http://127.0.0.1:8000"):
        for arguments in (whole, EngineArguments(), EngineArguments(task="embed")):
            for nodes in (1, 2):
                spec = EngineSpec(
                    model_dir=Path("/m"), served_name="m", endpoint=endpoint, arguments=arguments,
                    nodes=nodes,
                )  # fmt: skip
                for one in (spec, replace(spec, draft_dir=Path("/d"))):
                    written |= set(VllmEngine(Path("/python")).command(one)[3:])
    # Which nobody else may give either, since they decide what runs code and what is fetched.
    for word in ("--distributed-executor-backend=mp", "--allowed-media-domains=none.invalid"):
        written.remove(word)
        assert word[2:].partition("=")[0] in UNSAFE
    # An operator may have fewer images, or none.
    written = {word for word in written if not word.startswith("--limit-mm-per-prompt=")}
    names = {word[2:].partition("=")[0].partition(".")[0].removeprefix("no-") for word in written}
    assert names <= OURS
    assert not OURS & UNSAFE


@pytest.mark.parametrize(
    "flag",
    [
        "page-size", "--page-size 16", "--page-size.x=1", "--attention", "--page_size=16",
        "--trust-remote-code", "--enable-custom-logit-processor", "--api-key=x", "--config=/x",
        "--speculative-algorithm=NGRAM", "--hicache-storage-backend=file", "--port=1",
        "--max-lora-rank=8",
    ],
)  # fmt: skip
def test_of_sglang_s_flags_few_are_taken(flag: str) -> None:
    with pytest.raises(ValueError, match=r"no flag|not among"):
        check_sglang_flag(flag)
    with pytest.raises(ValidationError, match=r"sglang_flags\.0"):
        AgentSettings(sglang_flags=(flag,))


def test_sglang_s_flags_come_behind_ours() -> None:
    taken = ("--page-size=16", "--no-enable-tf32-matmul", "--enable-hierarchical-cache")
    engine = SglangEngine(Path("/python"), AgentSettings(sglang_flags=taken).sglang_flags)
    words = engine.command(EngineSpec(model_dir=Path("/m"), served_name="m", endpoint="unix:///s"))
    assert tuple(words[-len(taken) :]) == taken
    # Of the two programs, the keeper stands before the dashes.
    assert words.index("--uds=/s") < words.index("--") < words.index("--model-path=/m")


@pytest.mark.parametrize(
    ("flag", "does"),
    [
        ("--quantization=fp8", True),
        ("--quant=fp8", True),
        ("--cpu-offload-gb=8", True),
        ("--cpu_offload_gb=8", True),
        ("--quantization-param-path=x", False),
        ("--seed=7", False),
        ("quantization", False),
        ("", False),
    ],
)
def test_flags_by_which_weights_take_less_are_known(flag: str, does: bool) -> None:
    assert lightens(flag) is does
