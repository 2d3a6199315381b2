"""The model and its forward pass."""

import os
import time
from dataclasses import dataclass, field
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedModel
from transformers.cache_utils import Cache
from transformers.utils.logging import disable_progress_bar

from windlass_agent.engines.builtin.tokenizer import ModelTokenizer

# Below this, waking a second thread costs more than it computes.
SINGLE_THREAD_PARAMETERS = 20_000_000
ATTENTION = {"full_attention", "sliding_attention", "chunked_attention"}


class UnsupportedModel(Exception):
    """A model folder that this engine cannot serve, with the reason."""


@dataclass(frozen=True, kw_only=True)
class LoadedModel:
    """A causal language model, ready to run; touched by one thread alone."""

    network: PreTrainedModel
    tokenizer: ModelTokenizer
    name: str
    context_length: int
    eos: frozenset[int]
    vocabulary_size: int
    loaded_at: int = field(default_factory=lambda: int(time.time()))

    @property
    def device(self) -> torch.device:
        """Where its inputs must be."""
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
        width = max(len(ids) for ids in inputs)
        ids = torch.zeros(len(inputs), width, dtype=torch.long)
        mask = torch.zeros(len(inputs), width, dtype=torch.long)
        for row, tokens in enumerate(inputs):
            ids[row, : len(tokens)] = torch.tensor(tokens)
            mask[row, : len(tokens)] = 1
        mask = mask.to(self.device)
        hidden = self.network.base_model(
            input_ids=ids.to(self.device), attention_mask=mask, use_cache=False
        ).last_hidden_state.float()
        weights = mask.unsqueeze(-1).float()
        mean = (hidden * weights).sum(1) / weights.sum(1)
        vectors: list[list[float]] = torch.nn.functional.normalize(mean, dim=-1).tolist()
        return vectors


def load_model(
    path: Path, *, name: str, dtype: str = "auto", device: str = "auto", context: int | None = None
) -> LoadedModel:
    """Loads a folder of safetensors; raises UnsupportedModel, never runs code from it."""
    place = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
    kind = ("float32" if place == "cpu" else "bfloat16") if dtype == "auto" else dtype
    disable_progress_bar()
    try:
        config = AutoConfig.from_pretrained(path, local_files_only=True, trust_remote_code=False)
        _check_layers(config)
        network = AutoModelForCausalLM.from_pretrained(
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
    torch.set_num_threads(_threads(network, place))
    limit = int(config.get_text_config().max_position_embeddings)
    return LoadedModel(
        network=network,
        tokenizer=ModelTokenizer(tokenizer),
        name=name,
        context_length=min(limit, context or limit),
        eos=_eos(network, tokenizer.eos_token_id),
        vocabulary_size=int(config.get_text_config().vocab_size),
    )


def _check_layers(config: AutoConfig) -> None:
    kinds = set(getattr(config.get_text_config(), "layer_types", None) or ())
    if other := kinds - ATTENTION:
        raise UnsupportedModel(f"layers of kind {', '.join(sorted(other))} are not supported")


def _threads(network: PreTrainedModel, place: str) -> int:
    if place != "cpu" or network.num_parameters() < SINGLE_THREAD_PARAMETERS:
        return 1
    own = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    # One core stays free: threads that spin for a sibling without a core make a step
    # of a millisecond take hundreds (measured with two on two busy cores).
    return max(1, (own or 1) - 1)


def _eos(network: PreTrainedModel, fallback: int | None) -> frozenset[int]:
    generation = getattr(network, "generation_config", None)
    declared = getattr(generation, "eos_token_id", None)
    if declared is None:
        declared = network.config.eos_token_id
    if declared is None:
        declared = fallback if fallback is not None else []
    return frozenset([declared] if isinstance(declared, int) else declared)
