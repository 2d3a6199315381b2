"""A program of vLLM's environment that answers for one model after the other.

Each line of its standard input is a question in JSON, and each line of its standard output that
begins with `answer:` the answer. To import vLLM and to start a process of it for every model would
take an hour; what differs from model to model is in the engine, which is the one that serves.
"""

import gc
import json
import sys
from typing import Any

from vllm import LLM, SamplingParams
from vllm.distributed import cleanup_dist_env_and_memory
from vllm.engine.arg_utils import EngineArgs
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.lora.request import LoRARequest
from vllm.model_executor.models import registry
from vllm.utils.argparse_utils import FlexibleArgumentParser

# It would import vLLM in another process for each type of model.
registry._run_in_subprocess = lambda look: look()
PARSER = make_arg_parser(FlexibleArgumentParser())


def answers(question: dict[str, Any]) -> Any:
    """What an engine that is started with `flags` says."""
    engine = LLM.from_engine_args(EngineArgs.from_cli_args(PARSER.parse_args(question["flags"])))
    if question["task"] == "embed":
        return [one.outputs.embedding for one in engine.embed(question["texts"], use_tqdm=False)]
    if question["task"] == "score":
        found = engine.score(question["query"], question["texts"], use_tqdm=False)
        return [one.outputs.score for one in found]
    adapter = question["adapter"]
    adapters = [None, *([LoRARequest("tuned", 1, adapter)] if adapter else [])]
    params = SamplingParams(temperature=0, max_tokens=question["tokens"])
    return [
        engine.generate(question["prompt"], params, lora_request=one, use_tqdm=False)[0]
        .outputs[0]
        .text
        for one in adapters
    ]


for line in sys.stdin:
    try:
        told = {"said": answers(json.loads(line))}
    except Exception as error:
        told = {"refused": f"{type(error).__name__}: {error}"}
    gc.collect()
    cleanup_dist_env_and_memory()
    print(f"answer:{json.dumps(told)}", flush=True)
