"""`python -m windlass_agent.runner.export.entry`: a trained model in other forms.

`--check` only says whether the base can be had in them. Exit code 2 stands for a model that has
no such form; the last line of the output says why.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import torch
from peft import PeftConfig, PeftModel
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
)

ADAPTER = "adapter_config.json"
UNSUPPORTED = 2
# One PUT to S3 takes 5 GiB.
_SHARD_SIZE = "4GB"


def main() -> int:
    """Merges the adapter and writes GGUF; returns 0 or UNSUPPORTED."""
    options = _options()
    if options.gguf is None:
        merge(options.model, options.weights, options.merged)
        return 0
    from windlass_agent.gguf import model_file
    from windlass_agent.gguf.layout import Unsupported

    try:
        if options.check:
            model_file.check(options.model)
            return 0
        complete = options.weights
        if (complete / ADAPTER).exists():
            complete = options.merged
            merge(options.model, options.weights, complete)
        model_file.write(complete, options.gguf, name=options.name)
    except Unsupported as error:
        print(f"The model cannot be written as GGUF: {error}.")
        return UNSUPPORTED
    return 0


@torch.no_grad()  # type: ignore[untyped-decorator]  # mypy skips torch
def merge(model: Path, adapter: Path, target: Path) -> None:
    """Writes complete weights: those of `model`, changed as its LoRA `adapter` changes them."""
    scores = PeftConfig.from_pretrained(str(adapter)).task_type == "SEQ_CLS"
    kind: Any = AutoModelForSequenceClassification if scores else AutoModelForCausalLM
    labels = {"num_labels": 1} if scores else {}
    network = kind.from_pretrained(
        model, dtype="auto", local_files_only=True, use_safetensors=True, **labels
    )
    source = adapter if (adapter / "tokenizer.json").exists() else model
    tokenizer = AutoTokenizer.from_pretrained(source, local_files_only=True)
    merged = PeftModel.from_pretrained(network, adapter).merge_and_unload()
    if scores:
        # Where a classifier looks for the end of an input; as it was trained.
        pad = tokenizer.pad_token_id
        merged.config.pad_token_id = tokenizer.eos_token_id if pad is None else pad
    merged.save_pretrained(target, max_shard_size=_SHARD_SIZE)
    tokenizer.save_pretrained(target)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--merged", type=Path, required=True)
    parser.add_argument("--gguf", type=Path)
    parser.add_argument("--name", default="model")
    parser.add_argument("--check", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
