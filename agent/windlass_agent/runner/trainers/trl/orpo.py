"""`python -m windlass_agent.runner.trainers.trl.orpo FLAGS`: ORPO, in the shape of TRL's scripts.

TRL keeps the trainer in `trl.experimental` and has no command for it. The flags are those of
`trl dpo`, with ORPO's settings for DPO's.
"""

import argparse
from typing import Any

from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import (
    DatasetMixtureConfig,
    ModelConfig,
    ScriptArguments,
    TrlParser,
    get_peft_config,
    get_quantization_config,
)
from trl.experimental.orpo import ORPOConfig, ORPOTrainer


class _CountingTrainer(ORPOTrainer):  # type: ignore[misc]  # mypy skips trl
    """Logs how many tokens it has seen, as TRL's other trainers do."""

    _tokens = 0

    def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        if model.training:
            masks = (inputs[f"{name}_attention_mask"] for name in ("chosen", "rejected"))
            seen = sum(mask.sum() for mask in masks)
            self._tokens += int(self.accelerator.gather_for_metrics(seen).sum())
        return super().compute_loss(model, inputs, *args, **kwargs)

    def log(self, logs: dict[str, float], *args: Any) -> None:
        super().log({**logs, "num_tokens": float(self._tokens)}, *args)


def make_parser(prog: str | None = None) -> argparse.ArgumentParser:
    """Returns the parser of ORPO's flags."""
    parser: argparse.ArgumentParser = TrlParser(
        (ScriptArguments, ORPOConfig, ModelConfig, DatasetMixtureConfig), prog=prog
    )
    return parser


def main(script_args: Any, training_args: Any, model_args: Any, _dataset_args: Any) -> None:
    """Trains on the dataset's folder of `prompt`, `chosen` and `rejected`, and saves."""
    source = model_args.model_name_or_path
    dataset = load_dataset(script_args.dataset_name)
    tokenizer = AutoTokenizer.from_pretrained(source)
    # The trainer pads with it, and does not choose one as TRL's others do.
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    evaluates = training_args.eval_strategy != "no"
    trainer = _CountingTrainer(
        # A text would be loaded with a device map, which torchrun's processes cannot share.
        model=AutoModelForCausalLM.from_pretrained(
            source,
            dtype=model_args.dtype,
            quantization_config=get_quantization_config(model_args),
        ),
        args=training_args,
        train_dataset=dataset[script_args.dataset_train_split],
        eval_dataset=dataset[script_args.dataset_test_split] if evaluates else None,
        processing_class=tokenizer,
        peft_config=get_peft_config(model_args),
    )
    trainer.train(resume_from_checkpoint=training_args.resume_from_checkpoint)
    trainer.save_model(training_args.output_dir)
    # As TRL's scripts do: processes of torchrun part in peace.
    trainer.end()


if __name__ == "__main__":
    parsed: Any = make_parser("windlass orpo")
    main(*parsed.parse_args_and_config())
