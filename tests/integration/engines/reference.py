"""Reference implementation that the engine is compared with."""

from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Reference:
    """The same model, run by transformers alone."""

    network: Any
    tokenizer: Any

    def greedy(self, prompt: list[int], count: int) -> list[int]:
        ids = torch.tensor([prompt])
        output = self.network.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=count
        )
        return list(output[0, len(prompt) :].tolist())

    def text(self, ids: list[int]) -> str:
        text = self.tokenizer.decode(ids, skip_special_tokens=True)
        return str(text).rstrip("\ufffd")

    def chat(self, messages: list[dict[str, Any]]) -> list[int]:
        text = self.tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True
        )
        return list(self.tokenizer.encode(text, add_special_tokens=False))
