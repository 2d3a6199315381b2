"""A random model that reads images: Idefics 3's architecture, with the toy's tokens."""

from pathlib import Path

import torch
from tests.support.factories.toy_model import CONTEXT, TEMPLATE, make_tokenizer
from transformers import (
    Idefics3Config,
    Idefics3ForConditionalGeneration,
    Idefics3ImageProcessorPil,
    Idefics3Processor,
)

IMAGE = "<image>"
# Sides in pixels: of what it sees, and of the squares that it reads, four of which are a token.
SIDE, PATCH, SCALE = 56, 14, 2
# Heads that vLLM has kernels for, also on a CPU.
_HEAD = 32
_MARKS = (
    "<fake_token_around_image>",
    IMAGE,
    "<global-img>",
    "<end_of_utterance>",
    *(f"<row_{row}_col_{column}>" for row in range(1, 7) for column in range(1, 7)),
)


def make_vision(path: Path) -> Path:
    """Writes a model folder whose answers hang on the images that it is shown."""
    tokenizer = make_tokenizer(TEMPLATE)
    tokenizer.add_special_tokens({"additional_special_tokens": list(_MARKS)})
    torch.manual_seed(0)
    text = {
        "model_type": "llama",
        "vocab_size": len(tokenizer),
        "hidden_size": 4 * _HEAD,
        "intermediate_size": 6 * _HEAD,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": CONTEXT,
        "tie_word_embeddings": False,
        # Wide, so that the greedy path does not hang on the last bit of a float.
        "initializer_range": 0.3,
        "bos_token_id": None,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }
    eyes = {
        "hidden_size": 2 * _HEAD,
        "intermediate_size": 4 * _HEAD,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "image_size": SIDE,
        "patch_size": PATCH,
    }
    config = Idefics3Config(
        text_config=text,
        vision_config=eyes,
        image_token_id=tokenizer.convert_tokens_to_ids(IMAGE),
        scale_factor=SCALE,
        pad_token_id=tokenizer.pad_token_id,
        tie_word_embeddings=False,
    )
    Idefics3ForConditionalGeneration(config).save_pretrained(path)
    whole = {"longest_edge": SIDE}
    images = Idefics3ImageProcessorPil(size=whole, max_image_size=whole, do_image_splitting=False)
    tokens = (SIDE // PATCH // SCALE) ** 2
    Idefics3Processor(
        images, tokenizer, image_seq_len=tokens, chat_template=TEMPLATE
    ).save_pretrained(path)
    return path
