"""The model and its forward pass."""

import os
import time
from dataclasses import dataclass, field
from pathlib import Path

import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.cache_utils import Cache
from transformers.utils.logging import disable_progress_bar

from windlass.modelfiles import check_folder
from windlass_agent.engines.builtin.text.tokenizer import ModelTokenizer

# Below this, waking a second thread costs more than it computes.
SINGLE_THREAD_PARAMETERS = 20_000_000
CLASSIFIER = "ForSequenceClassification"
ATTENTION = {"full_attention", "sliding_attention", "chunked_attention"}


class UnsupportedModel(Exception):
    """A model folder that this engine cannot serve, with the reason."""


@dataclass(frozen=True, kw_only=True)
class LoadedModel:
    """A language model, ready to run; touched by one thread alone.

    `head` ([1, hidden]) is what makes scores of hidden states, of a model that writes nothing.
    """

    network: PreTrainedModel
    tokenizer: ModelTokenizer
    name: str
    context_length: int
    eos: frozenset[int]
    vocabulary_size: int
    pad: int | None = None
    head: torch.Tensor | None = None
    loaded_at: int = field(default_factory=lambda: int(time.time()))

    @property
    def device(self) -> torch.device:
        """The device of its inputs."""
        device: torch.device = self.network.device
        return device

    def logits(
        self,
        ids: torch.Tensor,
        positions: torch.Tensor,
        *,
        cache: Cache,
        mask: torch.Tensor | None = None,
        keep: int = 1,
    ) -> torch.Tensor:
        """Runs new tokens over `cache`, which grows; logits of the last `keep` (0: of all)."""
        output = self.network(
            input_ids=ids,
            position_ids=positions,
            attention_mask=mask,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=keep,
        )
        logits: torch.Tensor = output.logits
        return logits

    def embed(self, inputs: list[list[int]]) -> list[list[float]]:
        """The mean of each input's last hidden states, of length one."""
        hidden, mask, _ = self._hidden(inputs)
        weights = mask.unsqueeze(-1).float()
        mean = (hidden * weights).sum(1) / weights.sum(1)
        vectors: list[list[float]] = torch.nn.functional.normalize(mean, dim=-1).tolist()
        return vectors

    def score(self, inputs: list[list[int]], head: torch.Tensor) -> list[float]:
        """The value of `head` at each input's last token that is no padding.

        That is where transformers' classifiers look, and so what was trained: where a tokenizer
        pads with the end token, the end token itself is passed over.
        """
        hidden, mask, ids = self._hidden(inputs)
        told = mask if self.pad is None else mask * (ids != self.pad)
        last = (told * torch.arange(mask.shape[1], device=mask.device)).argmax(-1)
        pooled = hidden[torch.arange(len(inputs), device=mask.device), last]
        scores: list[float] = (pooled @ head.float().T).squeeze(-1).tolist()
        return scores

    def _hidden(self, inputs: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Last hidden states [inputs, width, hidden], and their mask and ids [inputs, width]."""
        width = max(len(ids) for ids in inputs)
        ids = torch.zeros(len(inputs), width, dtype=torch.long)
        mask = torch.zeros(len(inputs), width, dtype=torch.long)
        for row, tokens in enumerate(inputs):
            ids[row, : len(tokens)] = torch.tensor(tokens)
            mask[row, : len(tokens)] = 1
        ids, mask = ids.to(self.device), mask.to(self.device)
        hidden = self.network.base_model(
            input_ids=ids, attention_mask=mask, use_cache=False
        ).last_hidden_state.float()
        return hidden, mask, ids


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
        scores = _scores(config)
        kind_of_model = AutoModelForSequenceClassification if scores else AutoModelForCausalLM
        network = kind_of_model.from_pretrained(
            path,
            config=config,
            dtype=getattr(torch, kind),
            local_files_only=True,
            use_safetensors=True,
            trust_remote_code=False,
        )
        tokenizer = AutoTokenizer.from_pretrained(
            path, local_files_only=True, trust_remote_code=False
        )
    except (OSError, ValueError) as error:
        raise UnsupportedModel(f"{path}: {error}") from error
    network = network.to(place).eval()
    torch.set_num_threads(_threads(network, place, cpus))
    limit = int(config.get_text_config().max_position_embeddings)
    return LoadedModel(
        network=network,
        tokenizer=ModelTokenizer(tokenizer),
        name=name,
        context_length=min(limit, context or limit),
        eos=_eos(network, tokenizer.eos_token_id),
        vocabulary_size=int(config.get_text_config().vocab_size),
        pad=_pad(tokenizer),
        head=_head(network) if scores else None,
    )


def _check_layers(config: AutoConfig) -> None:
    kinds = set(getattr(config.get_text_config(), "layer_types", None) or ())
    if other := kinds - ATTENTION:
        raise UnsupportedModel(f"layers of kind {', '.join(sorted(other))} are not supported")


def _scores(config: AutoConfig) -> bool:
    """Returns True if it is a classifier; raises UnsupportedModel for one of several classes."""
    if not any(str(name).endswith(CLASSIFIER) for name in config.architectures or ()):
        return False
    if config.num_labels != 1:
        raise UnsupportedModel(f"a model that scores has one label, not {config.num_labels}")
    return True


def _head(network: PreTrainedModel) -> torch.Tensor:
    head = getattr(network, "score", None)
    if not isinstance(head, torch.nn.Linear) or head.bias is not None:
        raise UnsupportedModel(f"{type(network).__name__} has no plain `score` layer")
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
        declared = network.config.eos_token_id
    if declared is None:
        declared = fallback if fallback is not None else []
    return frozenset([declared] if isinstance(declared, int) else declared)
