"""`python -m windlass_agent.runner.evaluation.entry`: two models answer the same questions.

One after the other, each with the fine-tuned model's chat template. An answer that the model's
context leaves no room for is null.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

ADAPTER = "adapter_config.json"
_BATCH = 8


def main() -> None:
    """Writes a line for each question: what the base answers, and what the fine-tuned model."""
    options = _options()
    questions = [json.loads(line)["prompt"] for line in options.questions.open("rb")]
    has_own = (options.weights / "tokenizer.json").exists()
    tokenizer = AutoTokenizer.from_pretrained(
        options.weights if has_own else options.model, padding_side="left", local_files_only=True
    )
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    said = [
        _answers(_load(options, weights, tokenizer), tokenizer, questions, options)
        for weights in (options.adapter or options.model, options.weights)
    ]
    with options.answers.open("w") as file:
        for base, fine_tuned in zip(*said, strict=True):
            file.write(json.dumps({"base": base, "fine_tuned": fine_tuned}) + "\n")


def _load(options: argparse.Namespace, weights: Path, tokenizer: Any) -> Any:
    """The model that weights are, which may be an adapter of the base."""
    is_adapter = (weights / ADAPTER).exists()
    network: Any = AutoModelForCausalLM.from_pretrained(
        options.model if is_adapter else weights,
        dtype="auto",
        local_files_only=True,
        use_safetensors=True,
        # Spread over all GPUs, as a model may be larger than one.
        device_map="auto" if options.device == "cuda" else None,
    )
    text = network.config.get_text_config()
    ends = (text.eos_token_id, network.generation_config.eos_token_id, tokenizer.eos_token_id)
    # In place of the model's own, which could make one of them sample.
    network.generation_config = GenerationConfig(
        eos_token_id=sorted({token for each in ends for token in _listed(each)}),
        pad_token_id=tokenizer.pad_token_id,
        do_sample=options.temperature > 0,
        **({"temperature": options.temperature, "top_k": 0} if options.temperature else {}),
    )
    return PeftModel.from_pretrained(network, weights).eval() if is_adapter else network.eval()


def _listed(token: int | list[int] | None) -> list[int]:
    return [] if token is None else [token] if isinstance(token, int) else token


@torch.inference_mode()  # type: ignore[untyped-decorator]  # mypy skips torch
def _answers(
    network: Any, tokenizer: Any, questions: Sequence[Any], options: argparse.Namespace
) -> list[str | None]:
    torch.manual_seed(options.seed)
    context = getattr(network.config.get_text_config(), "max_position_embeddings", None)
    most = min(options.max_tokens, context // 2) if context else options.max_tokens
    prompts = [
        tokenizer.apply_chat_template(
            question, add_generation_prompt=True, tokenize=True, return_dict=False
        )
        for question in questions
    ]
    answers: list[str | None] = [None] * len(prompts)
    fits = [n for n, ids in enumerate(prompts) if not context or len(ids) + most <= context]
    for batch in _batches(sorted(fits, key=lambda number: len(prompts[number]))):
        padded = tokenizer.pad({"input_ids": [prompts[n] for n in batch]}, return_tensors="pt")
        given = padded.to(network.device)
        written = network.generate(**given, max_new_tokens=most)[:, given["input_ids"].shape[1] :]
        texts = tokenizer.batch_decode(written, skip_special_tokens=True)
        for number, text in zip(batch, texts, strict=True):
            answers[number] = text
    return answers


def _batches(numbers: list[int]) -> Iterator[list[int]]:
    for start in range(0, len(numbers), _BATCH):
        yield numbers[start : start + _BATCH]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    for name in ("model", "weights", "questions", "answers"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    # What training began with on top of the model.
    parser.add_argument("--adapter", type=Path)
    parser.add_argument("--device", required=True)
    parser.add_argument("--max-tokens", type=int, required=True)
    parser.add_argument("--temperature", type=float, required=True)
    parser.add_argument("--seed", type=int, required=True)
    return parser.parse_args()


if __name__ == "__main__":
    main()
