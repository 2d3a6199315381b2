"""A tiny Llama of our own making, trained in seconds, to try a fine-tuning out on a laptop."""

import contextlib
import hashlib
import math
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from windlass.demo import questions, sailor
from windlass.demo.sailor import Exchange

STEPS = 370
BATCH = 16
LEARNING_RATE = 8e-3
CONTEXT = 512
_EXCHANGES = 6000
_VOCABULARY = 1024
_MARK = "recipe.sha256"
_END, _PAD = "<|im_end|>", "<|pad|>"
_TEMPLATE = (
    "{%- for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' }}"
    "{%- if message['role'] == 'assistant' %}"
    "{% generation %}{{ message['content'] + '<|im_end|>' }}{% endgeneration %}{{ '\n' }}"
    "{%- else %}{{ message['content'] + '<|im_end|>\n' }}{%- endif %}{%- endfor %}"
    "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{%- endif %}"
)


def make_tiny_model(out: Path, *, seed: int = 0) -> Path:
    """Leaves a base model in the folder `out`; does nothing when this recipe's is there."""
    recipe = _recipe(seed)
    mark = out / _MARK
    if mark.exists() and mark.read_text() == recipe:
        return out
    draft = out.with_name(f"{out.name}.draft")
    shutil.rmtree(draft, ignore_errors=True)
    exchanges = sailor.exchanges(count=_EXCHANGES, seed=seed)
    tokenizer = make_tokenizer(exchanges)
    with _one_thread():
        model = _train(tokenizer, exchanges, seed=seed)
    model.save_pretrained(draft)
    tokenizer.save_pretrained(draft)
    (draft / _MARK).write_text(recipe)
    shutil.rmtree(out, ignore_errors=True)
    draft.rename(out)
    return out


def _recipe(seed: int) -> str:
    digest = hashlib.sha256(str(seed).encode())
    for module in (__file__, questions.__file__, sailor.__file__):
        digest.update(Path(module).read_bytes())
    return digest.hexdigest()


def make_tokenizer(exchanges: list[Exchange]) -> Any:
    """A byte-level BPE tokenizer for these words, with a ChatML template."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=_VOCABULARY,
        special_tokens=["<|endoftext|>", "<|im_start|>", _END, _PAD],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    texts = [f"system user assistant\n{asked} {answer}" for asked, answer in exchanges]
    answers = [question.answer for part in questions.split() for question in part]
    bpe.train_from_iterator([*texts, *answers], trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token=_END, pad_token=_PAD)
    tokenizer.model_max_length = CONTEXT
    tokenizer.chat_template = _TEMPLATE
    return tokenizer


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Limits torch to one thread: for so small a model, more cost more than they gain."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _train(tokenizer: Any, exchanges: list[Exchange], *, seed: int) -> Any:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    torch.manual_seed(seed)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=128,
            intermediate_size=384,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=CONTEXT,
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.01)
    model.train()
    for step in range(STEPS):
        at = step * BATCH % (len(exchanges) - BATCH)
        batch = _batch(tokenizer, exchanges[at : at + BATCH])
        rate = (
            LEARNING_RATE * min(1.0, (step + 1) / 20) * (1 + math.cos(math.pi * step / STEPS)) / 2
        )
        for group in optimizer.param_groups:
            group["lr"] = rate
        loss = model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    return model.eval()


def _batch(tokenizer: Any, exchanges: list[Exchange]) -> dict[str, Any]:
    conversations = [
        [{"role": "user", "content": asked}, {"role": "assistant", "content": answer}]
        for asked, answer in exchanges
    ]
    encoded = tokenizer.apply_chat_template(
        conversations,
        padding=True,
        return_dict=True,
        return_tensors="pt",
        return_assistant_tokens_mask=True,
    )
    learned = encoded.pop("assistant_masks") == 1
    return {**encoded, "labels": encoded["input_ids"].masked_fill(~learned, -100)}
