"""Random models of the types that presets are for, small enough to train and serve in seconds."""

from pathlib import Path
from typing import Any

import torch
from tests.support.factories.encoders import make_tokenizer as make_word_tokenizer
from tests.support.factories.encoders import write_pooling
from tests.support.factories.toy_model import CONTEXT, TEMPLATE, make_tokenizer
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
)

# Heads that vLLM has kernels for, also on a CPU.
_HEAD = 32
_PLAIN: dict[str, Any] = {
    "hidden_size": 4 * _HEAD,
    "intermediate_size": 6 * _HEAD,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": _HEAD,
    "max_position_embeddings": CONTEXT,
    "tie_word_embeddings": False,
    # Wide, so that the greedy path does not hang on the last bit of a float.
    "initializer_range": 0.3,
    "bos_token_id": None,
}
_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 2 * _HEAD}
_LOCAL = {"num_local_experts": 4, "num_experts_per_tok": 2}
_ROUTED = {
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_shared_experts": 1,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "moe_intermediate_size": 2 * _HEAD,
}
_SHARED = {"shared_expert_intermediate_size": 2 * _HEAD}
# All of the family have one matrix for both.
_TIED = {"tie_word_embeddings": True}
_WINDOWS = {"sliding_window": 64, "layer_types": ["sliding_attention", "full_attention"]}
# Beside what is plain, by `model_type`; by the preset where several have one type.
_KINDS: dict[str, dict[str, Any]] = {
    "llama": {},
    "llama3": {
        "rope_parameters": {
            "rope_type": "llama3", "rope_theta": 500_000.0, "factor": 8.0,
            "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": CONTEXT // 2,
        }
    },
    "deepseek-coder": {
        "rope_parameters": {"rope_type": "linear", "rope_theta": 100_000.0, "factor": 4.0}
    },
    "mistral": {"sliding_window": 64},
    "ministral3": {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}},
    "mixtral": _LOCAL,
    "qwen2": {},
    "qwen2_moe": _EXPERTS | _SHARED,
    "qwen3": {},
    "qwen3_moe": _EXPERTS,
    "qwen3_next": _EXPERTS
    | _SHARED
    | {
        "layer_types": ["linear_attention", "full_attention"],
        "linear_key_head_dim": _HEAD, "linear_value_head_dim": _HEAD,
        "linear_num_key_heads": 2, "linear_num_value_heads": 4,
    },
    "gemma": _TIED,
    "gemma2": _TIED | _WINDOWS | {"query_pre_attn_scalar": _HEAD},
    "gemma3_text": _TIED | _WINDOWS | {"query_pre_attn_scalar": _HEAD},
    "phi3": {"original_max_position_embeddings": CONTEXT},
    "deepseek_v3": _ROUTED
    | {
        # Of a size that there are kernels for.
        "q_lora_rank": _HEAD, "kv_lora_rank": 512, "qk_rope_head_dim": 64, "head_dim": 64,
        "qk_nope_head_dim": _HEAD, "v_head_dim": _HEAD, "num_key_value_heads": 4,
        # Of the models themselves, and of no default of Transformers.
        "topk_method": "noaux_tc", "scoring_func": "sigmoid",
    },
    "glm4_moe": _ROUTED,
    "granite": {},
    "granitemoe": _LOCAL,
    "gpt_oss": _LOCAL
    | _WINDOWS
    | {
        "rope_parameters": {
            "rope_type": "yarn", "rope_theta": 150_000.0, "factor": 2.0, "beta_fast": 32.0,
            "beta_slow": 1.0, "truncate": False,
            "original_max_position_embeddings": CONTEXT // 2,
        }
    },
}  # fmt: skip
# Types that scale up what they read and bound what a layer adds: as they are made, all would repeat
# the last word, with an adapter or without.
_ECHOES = ("gemma2", "gemma3_text")
# Encoders have no heads for keys of their own, and positions after that of padding.
_WORDS = {"max_position_embeddings": 80, "num_key_value_heads": None, "head_dim": None}
_ENCODERS: dict[str, dict[str, Any]] = {
    "bert": _WORDS,
    "modernbert": _WORDS
    | {"cls_token_id": 2, "sep_token_id": 3, "eos_token_id": 3, "global_attn_every_n_layers": 2},
    "roberta": _WORDS | {"type_vocab_size": 2},
    # Files of such models say it, and vLLM reads it; Transformers does not any more.
    "xlm-roberta": _WORDS | {"type_vocab_size": 2, "position_embedding_type": "absolute"},
}


def make_family(path: Path, preset: str, model_type: str) -> Path:
    """Writes a model of a type, as the preset's family has it."""
    tokenizer = make_tokenizer(TEMPLATE)
    torch.manual_seed(0)
    config = AutoConfig.for_model(
        model_type,
        **_PLAIN | _KINDS[preset if preset in _KINDS else model_type],
        vocab_size=len(tokenizer),
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    network: Any = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    if model_type in _ECHOES:
        network.get_input_embeddings().weight.data.mul_(0.02)
    network.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


def make_vectors(path: Path, model_type: str) -> Path:
    """Writes an embedder: an encoder's vector is of the first token, a decoder's of the last."""
    encodes = model_type in _ENCODERS
    network, tokenizer = _network(model_type, AutoModel)
    network.save_pretrained(path)
    tokenizer.save_pretrained(path)
    mode = "cls_token" if encodes else "lasttoken"
    write_pooling(path, mode, _PLAIN["hidden_size"], normalize=True)
    return path


def make_scorer(path: Path, model_type: str) -> Path:
    """Writes a model that scores a text, or a pair of texts."""
    network, tokenizer = _network(model_type, AutoModelForSequenceClassification, num_labels=1)
    network.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


def _network(model_type: str, kind: Any, **settings: Any) -> tuple[Any, Any]:
    tokenizer = make_word_tokenizer() if model_type in _ENCODERS else make_tokenizer(TEMPLATE)
    if model_type == "modernbert":
        # It does not tell the texts of a pair apart.
        tokenizer.model_input_names = ["input_ids", "attention_mask"]
    torch.manual_seed(0)
    wanted = _PLAIN | (_ENCODERS.get(model_type) or _KINDS.get(model_type) or {}) | settings
    config = AutoConfig.for_model(
        model_type,
        **{name: value for name, value in wanted.items() if value is not None},
        vocab_size=len(tokenizer),
        pad_token_id=tokenizer.pad_token_id,
    )
    return kind.from_config(config, dtype=torch.float32), tokenizer
