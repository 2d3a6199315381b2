"""Loads a model from its folder."""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils.logging import disable_progress_bar

from windlass.modelfiles import check_folder
from windlass.modelfiles.encoders.embedding import PLAIN, Pooling, pooling_of
from windlass.modelfiles.encoders.reranking import activation_of
from windlass_agent.engines.builtin.generation.model import LoadedModel, Task
from windlass_agent.engines.builtin.generation.pooling import Pooler
from windlass_agent.engines.builtin.text.tokenizer import ModelTokenizer

# Below this, waking a second thread costs more than it computes.
SINGLE_THREAD_PARAMETERS = 20_000_000
CLASSIFIER = "ForSequenceClassification"
ATTENTION = {"full_attention", "sliding_attention", "chunked_attention"}
# Of a folder that says one thing and holds another, by the libraries that read it.
_UNFIT = (
    *(OSError, ValueError, RuntimeError, AttributeError, TypeError, IndexError),
    SafetensorError,
)
_AUTO: dict[Task, Any] = {
    "generate": AutoModelForCausalLM,
    "score": AutoModelForSequenceClassification,
    "embed": AutoModel,
}


class UnsupportedModel(Exception):
    """A model folder that this engine cannot serve, with the reason."""


def load_model(
    path: Path,
    *,
    name: str,
    dtype: str = "auto",
    device: str = "auto",
    context: int | None = None,
    cpus: int | None = None,
) -> LoadedModel:
    """Loads a folder of safetensors; raises UnsupportedModel, never runs code from it."""
    place = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
    kind = ("float32" if place == "cpu" else "bfloat16") if dtype == "auto" else dtype
    disable_progress_bar()
    try:
        # The folder may have been stored by a release that checked less.
        check_folder(path)
        config = AutoConfig.from_pretrained(path, local_files_only=True, trust_remote_code=False)
        _check_layers(config)
        task, pooling = _task(path, config)
        read: Callable[[], PreTrainedModel] = partial(_read, path, config, task, kind, place)
        network = read()
        tokenizer = AutoTokenizer.from_pretrained(
            path, local_files_only=True, trust_remote_code=False
        )
        size = int(config.get_text_config().hidden_size)
        pooler = Pooler.load(path, pooling, place, size) if pooling.layers else Pooler(pooling)
        limit = _context(config, network, tokenizer, task)
    except _UNFIT as error:
        raise UnsupportedModel(f"{path}: {error}") from error
    torch.set_num_threads(_threads(network, place, cpus))
    head = _head(network) if task == "score" else None
    return LoadedModel(
        network=network,
        read=read,
        tokenizer=ModelTokenizer(tokenizer),
        name=name,
        context_length=min(limit, context or limit),
        eos=_eos(network, tokenizer.eos_token_id),
        vocabulary_size=int(config.get_text_config().vocab_size),
        pad=_pad(tokenizer),
        head=head,
        classifies=task == "score" and head is None,
        activation=activation_of(config.to_dict()) if task == "score" else "sigmoid",
        pooler=pooler,
        task=task,
    )


def _read(path: Path, config: AutoConfig, task: Task, kind: str, place: str) -> PreTrainedModel:
    network: PreTrainedModel = _AUTO[task].from_pretrained(
        path,
        config=config,
        dtype=getattr(torch, kind),
        local_files_only=True,
        use_safetensors=True,
        trust_remote_code=False,
    )
    moved: PreTrainedModel = network.to(place).eval()
    return moved


def _check_layers(config: AutoConfig) -> None:
    kinds = set(getattr(config.get_text_config(), "layer_types", None) or ())
    if other := kinds - ATTENTION:
        raise UnsupportedModel(f"layers of kind {', '.join(sorted(other))} are not supported")


def _task(path: Path, config: AutoConfig) -> tuple[Task, Pooling]:
    """Reads the task and the way to vectors; raises UnsupportedModel for many classes."""
    if any(str(name).endswith(CLASSIFIER) for name in config.architectures or ()):
        if config.num_labels != 1:
            raise UnsupportedModel(f"a model that scores has one label, not {config.num_labels}")
        return "score", PLAIN
    known = {str(file.relative_to(path)) for file in path.rglob("*")}
    architectures = {"architectures": config.architectures}
    pooling = pooling_of(architectures, known, lambda name: (path / name).read_bytes())
    if pooling and config.is_encoder_decoder:
        raise UnsupportedModel("an encoder with a decoder beside it makes no vectors here")
    return ("embed", pooling) if pooling else ("generate", PLAIN)


def _context(
    config: AutoConfig, network: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, task: Task
) -> int:
    """Tokens of the longest input."""
    limit = int(config.get_text_config().max_position_embeddings)
    if task == "generate":
        return limit
    # Some encoders count positions from the one of padding, and have fewer places than positions.
    for name, module in network.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, torch.nn.Embedding):
            skipped = 0 if module.padding_idx is None else module.padding_idx + 1
            limit = min(limit, module.num_embeddings - skipped)
    return min(limit, int(tokenizer.model_max_length))


def _head(network: PreTrainedModel) -> torch.Tensor | None:
    """The layer that scores hidden states; None where the network alone knows how."""
    head = getattr(network, "score", None)
    if not isinstance(head, torch.nn.Linear) or head.bias is not None:
        return None
    return head.weight.detach()


def _pad(tokenizer: PreTrainedTokenizerBase) -> int | None:
    # As TRL chooses it when it trains.
    pad: int | None = tokenizer.pad_token_id
    if pad is None:
        pad = tokenizer.eos_token_id
    return pad


def _threads(network: PreTrainedModel, place: str, cpus: int | None) -> int:
    if place != "cpu" or network.num_parameters() < SINGLE_THREAD_PARAMETERS:
        return 1
    own = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    # One core stays free: threads that spin for a sibling without a core make a step
    # of a millisecond take hundreds (measured with two on two busy cores).
    return max(1, min(own or 1, cpus or own or 1) - 1)


def _eos(network: PreTrainedModel, fallback: int | None) -> frozenset[int]:
    generation = getattr(network, "generation_config", None)
    declared = getattr(generation, "eos_token_id", None)
    if declared is None:
        declared = getattr(network.config, "eos_token_id", None)
    if declared is None:
        declared = fallback if fallback is not None else []
    return frozenset([declared] if isinstance(declared, int) else declared)
