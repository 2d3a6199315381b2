"""The model and its forward passes."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from transformers import PreTrainedModel
from transformers.cache_utils import Cache

from windlass.modelfiles.encoders.reranking import Activation
from windlass_agent.engines.builtin.generation.pooling import Pooler
from windlass_agent.engines.builtin.text.tokenizer import ModelTokenizer

Task = Literal["generate", "embed", "score"]


@dataclass(frozen=True, kw_only=True)
class LoadedModel:
    """A language model, ready to run; touched by one thread alone.

    `head` ([1, hidden]) is what makes scores of hidden states, of a model that writes nothing;
    one that `classifies` has its head within the network. `activation` makes the scores of pairs.
    """

    network: PreTrainedModel
    read: Callable[[], PreTrainedModel]
    """Reads the network from its folder once more."""
    tokenizer: ModelTokenizer
    name: str
    context_length: int
    eos: frozenset[int]
    vocabulary_size: int
    pad: int | None = None
    head: torch.Tensor | None = None
    classifies: bool = False
    activation: Activation = "sigmoid"
    pooler: Pooler = field(default_factory=Pooler)
    task: Task = "generate"
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
        """A vector of each input."""
        hidden, mask, _ = self._hidden(inputs)
        return self.pooler(hidden, mask)

    def classify(
        self, inputs: Sequence[list[int]], types: Sequence[list[int]] | None = None
    ) -> list[float]:
        """The value that a network with a head of its own gives each input.

        `types` are those of the inputs' tokens, where a text of two parts tells them apart.
        """
        padding = getattr(self.network.config, "pad_token_id", None)
        if padding is None and len(inputs) > 1:
            # Networks that look for the last token that is no padding cannot do several.
            alone = [None if types is None else [types[row]] for row in range(len(inputs))]
            return [self.classify([one], alone[row])[0] for row, one in enumerate(inputs)]
        ids, mask = self._batch(inputs, padding or 0)
        known = getattr(self.network.config, "type_vocab_size", 0)
        extra = {}
        if types is not None and max(map(max, types)) < known:
            extra["token_type_ids"] = self._batch(types)[0]
        logits = self.network(input_ids=ids, attention_mask=mask, **extra).logits
        values: list[float] = logits[:, 0].float().tolist()
        return values

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

    def _hidden(
        self, inputs: Sequence[list[int]]
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Last hidden states [inputs, width, hidden], and their mask and ids [inputs, width]."""
        ids, mask = self._batch(inputs)
        # Networks without a cache do not know the word.
        caches = {} if self.task == "embed" else {"use_cache": False}
        hidden = self.network.base_model(
            input_ids=ids, attention_mask=mask, **caches
        ).last_hidden_state.float()
        return hidden, mask, ids

    def _batch(
        self, inputs: Sequence[list[int]], padding: int = 0
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Rows of one width, and where they are no padding, both [inputs, width]."""
        width = max(len(ids) for ids in inputs)
        ids = torch.full((len(inputs), width), padding, dtype=torch.long)
        mask = torch.zeros(len(inputs), width, dtype=torch.long)
        for row, tokens in enumerate(inputs):
            ids[row, : len(tokens)] = torch.tensor(tokens)
            mask[row, : len(tokens)] = 1
        return ids.to(self.device), mask.to(self.device)
