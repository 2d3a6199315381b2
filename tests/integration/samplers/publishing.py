"""A model that is trained beside an engine, and what it says itself."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from windlass.weight_versions import VersionMedium, VersionPublisher
from windlass_agent.engines.builtin.generation.tensor_bytes import tensor_bytes

# Longer than two of the blocks of keys and values of vLLM on CPUs.
PROMPT = [5 + (37 * place) % 200 for place in range(300)]


@dataclass
class PublishedModel:
    """A copy of the engine's model, and its versions; each test goes on from the last."""

    network: Any
    medium: VersionMedium
    root: Path
    scratch: Path
    version: int = 0
    publisher: VersionPublisher = field(init=False)

    def __post_init__(self) -> None:
        # In fp32 such steps change about every bit.
        self.publisher = VersionPublisher(self.medium, self.scratch, largest_delta=2)

    async def step(self) -> int:
        """Changes and publishes the weights; returns the version."""
        if not self.version:
            await self.publisher.start(self._weights())
        torch.manual_seed(self.version)
        with torch.no_grad():
            for parameter in self.network.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.02)
        self.version += 1
        await self.publisher.put(self.version, self._weights())
        return self.version

    def logprobs(self, count: int, prompt: list[int] | None = None) -> list[float]:
        """Those of the tokens that the weights of now choose."""
        ids, found = list(prompt or PROMPT), []
        with torch.no_grad():
            for _ in range(count):
                scores = self.network(torch.tensor([ids])).logits[0, -1].log_softmax(-1)
                ids.append(int(scores.argmax()))
                found.append(float(scores.max()))
        return found

    def _weights(self) -> Any:
        return tensor_bytes(dict(self.network.named_parameters()))
