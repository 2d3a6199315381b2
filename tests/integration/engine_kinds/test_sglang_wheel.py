"""What Windlass takes for SGLang's, held to SGLang's wheel: flags, fields, metrics and formats.

SGLang needs a GPU to run; its parser and the types of its requests do not.
"""

import json
import re
import subprocess
from pathlib import Path
from typing import Any, TypeVar, get_args

import msgspec
import pytest
from tests.integration.engine_kinds.test_vllm_flags import ALL
from tests.support.environments.sglang.env import VERSION, sglang_python

from windlass.engine_arguments import NO_FORMAT, TAKEN, EngineArguments
from windlass.engine_flags import SGLANG_TAKEN
from windlass.inference_api.requests import parse
from windlass.inference_api.vllm import CHAT as VLLM_CHAT
from windlass.modelfiles.quantization import READ
from windlass_agent.engines.port import EngineSpec
from windlass_agent.engines.sglang.bodies import (
    SaltedChat,
    SaltedCompletion,
    chat_body,
    completion_body,
)
from windlass_agent.engines.sglang.kind import LOAD_NAMES, OLDEST, SglangEngine
from windlass_agent.engines.sglang.server import SglangCommand

S = TypeVar("S", bound=msgspec.Struct)
pytestmark = [pytest.mark.torch, pytest.mark.timeout(600)]
_READ = """
import argparse, json, sys
from sglang.srt.entrypoints.openai import protocol
from sglang.srt.server_args import ServerArgs, prepare_server_args

asked = json.load(sys.stdin)
parser = argparse.ArgumentParser()
ServerArgs.add_cli_args(parser)
lost = []
for kind, body in asked["bodies"]:
    model = getattr(protocol, kind)
    model.model_validate(body)
    lost += sorted(set(body) - set(model.model_fields))
facts = {
    "read": [vars(parser.parse_args(words)) for words in asked["commands"]],
    "key": prepare_server_args(asked["whole"]).api_key,
    "flags": sorted({word for action in parser._actions for word in action.option_strings}),
    "lost": lost,
    "quantizations": next(
        action.choices for action in parser._actions if "--quantization" in action.option_strings
    ),
}
print(json.dumps(facts, default=str))
"""
ARGUMENTS = ALL.model_copy(
    update=dict.fromkeys(
        (
            "draft_model",
            "draft_tokens",
            "kv_cache_bytes",
            "kv_offload_bytes",
            "lookup_tokens",
            "pipeline_parallel",
            "task",
        )
    )
    | {"max_adapter_rank": 20, "reasoning_parser": "qwen3", "tool_parser": "hermes"}
)
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
SHARED: dict[str, Any] = {
    "model": "m", "n": 2, "temperature": 0.5, "top_p": 0.9, "top_k": 0, "min_p": 0.1,
    "presence_penalty": 0.1, "frequency_penalty": 0.1, "repetition_penalty": 1.1,
    "stop": ["a"], "stop_token_ids": [1], "skip_special_tokens": False, "logit_bias": {"5": 1},
    "min_tokens": 1, "ignore_eos": True, "max_tokens": 5, "cache_salt": "s", "priority": 10,
    "stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True},
}  # fmt: skip
CHAT = SHARED | {
    "messages": [{"role": "user", "content": "hello"}], "tools": [TOOL], "tool_choice": "required",
    "parallel_tool_calls": False, "logprobs": True, "top_logprobs": 2,
    "chat_template_kwargs": {"thinking": True},
    "continue_final_message": False,
    "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}},
}  # fmt: skip
COMPLETION = SHARED | {
    "prompt": ["a", "b"], "echo": True, "structured_outputs": {"choice": ['a "b"', "c\n"]}
}  # fmt: skip


def spec(**fields: Any) -> EngineSpec:
    return EngineSpec(
        model_dir=Path("/models/m"), served_name="--a model", endpoint="unix:///run/e/s", **fields
    )


def read(kind: type[S], body: dict[str, Any]) -> S:
    return parse(kind, msgspec.json.encode(body))


def bodies() -> list[tuple[str, Any]]:
    """What the keeper sends for requests with everything in them."""
    efforts = get_args(VLLM_CHAT["reasoning_effort"][0])
    made = [
        ("ChatCompletionRequest", chat_body(read(SaltedChat, CHAT | {"reasoning_effort": effort})))
        for effort in efforts
    ]
    made.append(("CompletionRequest", completion_body(read(SaltedCompletion, COMPLETION))))
    ours = {"model": "base", "lora_path": "adapter-1", "rid": "req-1"}
    return [(kind, json.loads(msgspec.json.encode(body | ours))) for kind, body in made]


@pytest.fixture(scope="module")
def engine() -> SglangEngine:
    return SglangEngine(sglang_python())


@pytest.fixture(scope="module")
def facts(engine: SglangEngine, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What SGLang makes of our commands and bodies, asked once: to import it takes its time."""
    command = SglangCommand(
        words=tuple(engine.flags_of(spec())), folder=tmp_path_factory.mktemp("sglang")
    )
    specs = (
        spec(arguments=ARGUMENTS, gpus=4, max_adapters=3),
        spec(gpus=4),
        spec(arguments=EngineArguments(tool_parser=NO_FORMAT, chunked_prefill=False, eager=False)),
    )
    asked = {
        "commands": [engine.flags_of(one) for one in specs],
        "whole": command.at(4000, "key-1"),
        "bodies": bodies(),
    }
    done = subprocess.run(
        [str(engine.python), "-c", _READ],
        input=json.dumps(asked),
        env={"HOME": "/tmp", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_every_argument_means_there_what_it_means_here(facts: dict[str, Any]) -> None:
    left_out = {name for name, value in ARGUMENTS if value is None}
    assert left_out == set(EngineArguments.model_fields) - TAKEN["sglang"]
    found, all_gpus, switched = facts["read"]
    assert {
        "model_path": "/models/m",
        "context_length": 4096,
        "max_running_requests": 16,
        "dtype": "bfloat16",
        "tp_size": 2,
        "ep_size": 2,
        "mem_fraction_static": 0.5,
        "kv_cache_dtype": "fp8_e4m3",
        "disable_radix_cache": True,
        "chunked_prefill_size": 8192,
        "max_prefill_tokens": 8192,
        "max_lora_rank": 20,
        # The base is one of them.
        "max_loras_per_batch": 4,
        "max_loaded_loras": 4,
        "enable_lora": True,
        "lora_target_modules": ["all"],
        "tool_call_parser": "hermes",
        "reasoning_parser": "qwen3",
        "cuda_graph_backend_decode": "disabled",
        "cuda_graph_backend_prefill": "disabled",
        "enable_priority_scheduling": True,
        "schedule_low_priority_values_first": True,
        "disable_priority_preemption": True,
        "sampling_defaults": "openai",
        "grammar_backend": "xgrammar",
        "enable_metrics": True,
        "enable_cache_report": True,
        "speculative_algorithm": None,
        "trust_remote_code": False,
        "trust_request_chat_template": False,
        "enable_custom_logit_processor": False,
    }.items() <= found.items()
    assert (all_gpus["tp_size"], all_gpus["ep_size"], all_gpus["max_lora_rank"]) == (4, 1, 64)
    assert (all_gpus["tool_call_parser"], all_gpus["reasoning_parser"]) == ("auto", "auto")
    assert not all_gpus["disable_radix_cache"]
    assert all_gpus["context_length"] is all_gpus["chunked_prefill_size"] is None
    assert (switched["tool_call_parser"], switched["chunked_prefill_size"]) == (None, -1)
    assert switched["cuda_graph_backend_decode"] is None


def test_every_quantization_that_it_reads_is_one_of_sglang_s(facts: dict[str, Any]) -> None:
    assert READ["sglang"] <= set(facts["quantizations"])


def test_its_key_is_read_of_a_file_and_stands_in_no_command(
    engine: SglangEngine, facts: dict[str, Any], tmp_path: Path
) -> None:
    command = SglangCommand(words=tuple(engine.flags_of(spec())), folder=tmp_path)
    words = command.at(4000, "key-1")
    assert facts["key"] == "key-1"
    assert not any("key-1" in word for word in words)
    assert (tmp_path / "sglang.yaml").stat().st_mode & 0o077 == 0


def test_what_an_operator_may_add_is_sglang_s(facts: dict[str, Any]) -> None:
    known = {flag.lstrip("-").removeprefix("no-") for flag in facts["flags"]}
    assert known >= SGLANG_TAKEN


def test_it_leaves_nothing_out_of_what_it_is_sent(facts: dict[str, Any]) -> None:
    assert facts["lost"] == []


def test_what_is_read_of_its_metrics_is_there(engine: SglangEngine) -> None:
    assert engine.installed()
    assert ".".join(map(str, OLDEST)) == VERSION, "the first release is the one that was read"
    (collector,) = engine.python.parents[1].glob(
        "lib/python*/site-packages/sglang_wheel/srt/observability/metrics_collector.py"
    )
    known = set(re.findall(r'name="(sglang:\w+)"', collector.read_text()))
    names = (
        LOAD_NAMES.running, LOAD_NAMES.waiting, *LOAD_NAMES.prompt_tokens,
        LOAD_NAMES.cached_tokens, LOAD_NAMES.generated_tokens, LOAD_NAMES.cache_used,
    )  # fmt: skip
    assert set(names) <= known
