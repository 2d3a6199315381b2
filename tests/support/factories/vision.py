"""A random model that reads images: LLaVA's architecture, with CLIP's eyes and the toy's tokens."""

from pathlib import Path

import torch
from tests.support.factories.toy_model import CONTEXT, TEMPLATE, make_tokenizer
from transformers import (
    CLIPImageProcessorPil,
    CLIPVisionConfig,
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaProcessor,
)

IMAGE = "<image>"
# Sides in pixels: of what it sees, and of the squares that it reads. Each square is a token.
SIDE, PATCH = 56, 14
IMAGE_TOKENS = (SIDE // PATCH) ** 2
# Heads that vLLM has kernels for, also on a CPU.
_HEAD = 32


def make_vision(path: Path) -> Path:
    """Writes a model folder whose answers hang on the images that it is shown."""
    tokenizer = make_tokenizer(TEMPLATE)
    tokenizer.add_special_tokens({"additional_special_tokens": [IMAGE]})
    torch.manual_seed(0)
    text = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=4 * _HEAD,
        intermediate_size=6 * _HEAD,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=False,
        # Wide, so that the greedy path does not hang on the last bit of a float.
        initializer_range=0.3,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    eyes = CLIPVisionConfig(
        hidden_size=2 * _HEAD,
        intermediate_size=4 * _HEAD,
        num_hidden_layers=2,
        num_attention_heads=2,
        image_size=SIDE,
        patch_size=PATCH,
    )
    config = LlavaConfig(
        text_config=text,
        vision_config=eyes,
        image_token_index=tokenizer.convert_tokens_to_ids(IMAGE),
        tie_word_embeddings=False,
    )
    LlavaForConditionalGeneration(config).save_pretrained(path)
    sight = {"shortest_edge": SIDE}
    images = CLIPImageProcessorPil(size=sight, crop_size={"height": SIDE, "width": SIDE})
    LlavaProcessor(
        images,
        tokenizer,
        patch_size=PATCH,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=TEMPLATE,
    ).save_pretrained(path)
    return path
