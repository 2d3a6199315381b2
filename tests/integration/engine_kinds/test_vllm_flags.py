"""The flags that vLLM is started with, read by vLLM's own parser."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.support.environments.vllm_env import VERSION, vllm_python
from tests.unit.modelfiles.test_adapter_traits import HELD

from windlass.engine_arguments import NO_FORMAT, EngineArguments
from windlass.engine_flags import OURS, UNSAFE
from windlass.modelfiles.adapter_traits import adapter_traits, refusal
from windlass.modelfiles.formats import marked_tools
from windlass.modelfiles.presets import shipped
from windlass.modelfiles.quantization import READ
from windlass_agent.engines.port import EngineSpec
from windlass_agent.engines.vllm_engine import VllmEngine

# One program, since to import vLLM takes its time.
_PROGRAM = """
import json, sys
from vllm import __version__
from vllm.config.lora import LoRAConfig
from vllm.entrypoints.launchers.cli_args import make_arg_parser, validate_parsed_serve_args
from vllm.lora.peft_helper import PEFTHelper
from vllm.model_executor.layers.quantization import (
    DEPRECATED_QUANTIZATION_METHODS, QUANTIZATION_METHODS, get_quantization_config
)
from vllm.reasoning import ReasoningParserManager
from vllm.tool_parsers import ToolParserManager
from vllm.utils.argparse_utils import FlexibleArgumentParser

def refusal(config):
    try:
        PEFTHelper.from_dict(config).validate_legal(LoRAConfig(max_lora_rank=64))
    except ValueError as error:
        return str(error)
    return ""

def parsed(words):
    found = parser.parse_args(words)
    validate_parsed_serve_args(found)
    backend = found.structured_outputs_config.backend
    return {"version": __version__} | vars(found) | {"structured_outputs_config": backend}

commands, configs = json.load(sys.stdin)
parser = make_arg_parser(FlexibleArgumentParser())
told = {
    "tools": ToolParserManager.list_registered(),
    "reasoning": ReasoningParserManager.list_registered(),
    "flags": sorted({word for action in parser._actions for word in action.option_strings}),
    "quantizations": sorted(set(QUANTIZATION_METHODS) - set(DEPRECATED_QUANTIZATION_METHODS)),
    "rounded": get_quantization_config("inc").override_quantization_method(
        {"quant_method": "auto-round"}, None
    ),
    "refusals": [refusal(config) for config in configs],
    "parsed": [parsed(words) for words in commands],
}
print(json.dumps(told, default=str))
"""
LEADER = "leader.set.space"
_PLAIN = {"peft_type": "LORA", "r": 8, "lora_alpha": 16, "target_modules": ["q_proj"]}
# What vLLM does not look at here, it finds as weights that it does not know.
_FEATURES = {name: value for name, value in HELD.items() if name != "trainable_token_indices"}
ADAPTERS = [_PLAIN, _PLAIN | {"r": 65}, *(_PLAIN | {name: _FEATURES[name]} for name in _FEATURES)]
ALL = EngineArguments(
    context_length=4096,
    max_concurrency=16,
    dtype="bfloat16",
    tensor_parallel=2,
    pipeline_parallel=2,
    expert_parallel=True,
    memory_fraction=0.5,
    kv_cache_bytes=2**30,
    kv_cache_dtype="fp8",
    prefix_caching=False,
    chunked_prefill=True,
    max_batched_tokens=8192,
    kv_offload_bytes=2**29,
    lookup_tokens=3,
    draft_model="small",
    draft_tokens=5,
    max_adapter_rank=20,
    tool_parser="hermes",
    reasoning_parser="qwen3",
    eager=True,
    task="generate",
)


def _flags(engine: VllmEngine, spec: EngineSpec) -> list[str]:
    """The command without its program."""
    words = [_expanded(word) for word in engine.command(spec)[3:]]
    return words[1:] if words[0] == "serve" else words


def _expanded(word: str) -> str:
    """A word of the command as Kubernetes puts variables of the container into it."""
    for name, value in (("GROUP_SIZE", "2"), ("WORKER_INDEX", "1"), ("LEADER_ADDRESS", LEADER)):
        word = word.replace(f"$(LWS_{name})", value)
    return word


def spec(**fields: Any) -> EngineSpec:
    return EngineSpec(
        model_dir=Path("/models/m"), served_name="--a model", endpoint="unix:///run/e/s", **fields
    )


SPECS = (
    spec(arguments=ALL, gpus=4, max_adapters=3),
    spec(gpus=4),
    spec(),
    spec(arguments=EngineArguments(task="embed", lookup_tokens=3, tool_parser="hermes")),
    spec(gpus=4, nodes=2),
    spec(gpus=4, nodes=2, is_member=True),
    spec(arguments=EngineArguments(draft_model="small"), draft_dir=Path("/models/d")),
    spec(arguments=ALL, draft_dir=Path("/models/d")),
)


@pytest.fixture(scope="module")
def facts() -> dict[str, Any]:
    """What vLLM says of itself, and how it understands the commands that start it."""
    engine = VllmEngine(vllm_python())
    done = subprocess.run(
        [str(engine.python), "-c", _PROGRAM],
        input=json.dumps([[_flags(engine, one) for one in SPECS], ADAPTERS]),
        env={"VLLM_NO_USAGE_STATS": "1", "HOME": "/tmp", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.torch
@pytest.mark.timeout(900)
def test_every_format_is_one_of_vllms(facts: dict[str, Any]) -> None:
    presets = shipped().values()
    tools = [*marked_tools(), *(rule for preset in presets for rule in preset.tools)]
    assert {one.format for one in tools} <= set(facts["tools"])
    reasoning = {one.format for preset in presets for one in preset.reasoning}
    assert reasoning <= set(facts["reasoning"])


@pytest.mark.torch
@pytest.mark.timeout(900)
def test_every_quantization_that_it_reads_is_one_of_vllms(facts: dict[str, Any]) -> None:
    known = set(facts["quantizations"])
    assert facts["rounded"] == "inc"
    assert READ["vllm"] - {"auto-round"} <= known
    # Other names of the same, and ways to quantize what is not. What a release adds is judged here.
    assert known - READ["vllm"] == {
        "auto_awq", "auto_gptq", "awq_marlin", "deepseek_v4_fp8", "experts_int8", "fp8_per_block",
        "fp8_per_channel", "fp8_per_tensor", "gpt_oss_mxfp4", "gptq_marlin", "humming", "inc",
        "int8_per_channel_weight_only", "moe_wna16", "nvfp4_per_token", "online",
    }  # fmt: skip


@pytest.mark.torch
@pytest.mark.timeout(900)
def test_vllm_loads_the_adapters_that_it_is_said_to_load(facts: dict[str, Any]) -> None:
    for config, refused in zip(ADAPTERS, facts["refusals"], strict=True):
        traits = adapter_traits(json.dumps(config).encode())
        assert traits is not None
        assert bool(refusal("vllm", traits, 64)) == bool(refused), refused


@pytest.mark.torch
@pytest.mark.timeout(900)
def test_every_flag_that_an_operator_must_not_give_is_one_of_vllms(facts: dict[str, Any]) -> None:
    known = {flag.lstrip("-").removeprefix("no-") for flag in facts["flags"]}
    assert not (OURS | UNSAFE) - known


def test_no_format_is_no_flag() -> None:
    arguments = EngineArguments(tool_parser=NO_FORMAT, reasoning_parser=NO_FORMAT)
    words = " ".join(VllmEngine(Path("/python")).command(spec(arguments=arguments)))
    assert "parser" not in words
    assert "auto-tool-choice" not in words


@pytest.mark.torch
@pytest.mark.timeout(900)
def test_every_argument_means_there_what_it_means_here(facts: dict[str, Any]) -> None:
    assert not [name for name, value in ALL if value is None], "an argument that is not tested"
    found, all_gpus, no_gpu, embeds, first, other, drafted, drafts_five = facts["parsed"]
    assert found["version"].startswith(VERSION)
    assert {
        "model": "/models/m",
        "served_model_name": ["--a model"],
        "uds": "/run/e/s",
        "max_model_len": 4096,
        "max_num_seqs": 16,
        "dtype": "bfloat16",
        "tensor_parallel_size": 2,
        "pipeline_parallel_size": 2,
        "enable_expert_parallel": True,
        "gpu_memory_utilization": 0.5,
        "kv_cache_memory_bytes": 2**30,
        "kv_cache_dtype": "fp8",
        "enable_prefix_caching": False,
        "enable_chunked_prefill": True,
        "max_num_batched_tokens": 8192,
        "kv_offloading_size": 0.5,
        "spec_method": "ngram",
        "spec_tokens": 3,
        # The next that vLLM has kernels for.
        "max_lora_rank": 32,
        "max_loras": 3,
        "max_cpu_loras": 3,
        "tool_call_parser": "hermes",
        "enable_auto_tool_choice": True,
        "reasoning_parser": "qwen3",
        "enforce_eager": True,
        "scheduling_policy": "priority",
        "generation_config": "vllm",
        "structured_outputs_config": "xgrammar",
        "enable_server_load_tracking": True,
        "trust_remote_code": False,
        "trust_request_chat_template": False,
        "limit_mm_per_prompt": {"image": 16, "video": 0, "audio": 0},
        # A host that nobody can have: without a list it would fetch from all.
        "allowed_media_domains": ["none.invalid"],
        "allowed_local_media_path": "",
    }.items() <= found.items()

    assert (all_gpus["tensor_parallel_size"], all_gpus["enable_expert_parallel"]) == (4, False)
    # The longest that fits.
    assert all_gpus["max_model_len"] == -1
    assert all_gpus["kv_cache_memory_bytes"] is None
    # Without a GPU it would take nine tenths of the machine.
    assert (no_gpu["tensor_parallel_size"], no_gpu["kv_cache_memory_bytes"]) == (1, 2**30)
    assert (found["runner"], embeds["runner"]) == ("auto", "pooling")
    assert not embeds["enable_lora"]
    assert (embeds["spec_tokens"], embeds["tool_call_parser"]) == (None, None)
    assert "MEAN" in embeds["pooler_config"]
    guessing = ("spec_method", "spec_model", "spec_tokens")
    assert [drafted[name] for name in guessing] == ["draft_model", "/models/d", 3]
    assert drafts_five["spec_tokens"] == 5
    for one in (first, other):
        assert (one["nnodes"], one["node_rank"], one["master_addr"]) == (2, 1, LEADER)
        assert (one["tensor_parallel_size"], one["pipeline_parallel_size"]) == (4, 2)
        assert (one["distributed_executor_backend"], bool(one["enable_lora"])) == ("mp", False)
    assert (first["headless"], first["api_server_count"]) == (False, 1)
    # It starts no server, and refuses to be told of one.
    assert (other["headless"], other["api_server_count"]) == (True, None)
