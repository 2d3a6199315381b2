"""Sleep of the model: its weights are dropped, and read again from its folder."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import torch

from windlass.inference_api.errors import asleep
from windlass_agent.engines.builtin.generation.adapters import Call
from windlass_agent.engines.builtin.generation.model import LoadedModel

_POLL_SECONDS = 0.05


class DroppableWeights:
    """The model's own parameters; adapters keep theirs. Touched by the scheduler's thread alone."""

    def __init__(self, model: LoadedModel):
        """Takes a model without adapters, which would bring parameters of their own."""
        self._model = model
        self.parameters = dict(model.network.named_parameters())
        """By their names before any adapter wrapped them."""

    def drop(self) -> None:
        """Frees their memory."""
        for parameter in self.parameters.values():
            parameter.data = parameter.data.new_empty(0)
        if self._model.device.type == "cuda":
            torch.cuda.empty_cache()

    def restore(self) -> None:
        """Reads them again; raises what the loader does."""
        # Not in inference mode: what is made there cannot leave it.
        with torch.inference_mode(False), torch.no_grad():
            fresh = dict(self._model.read().named_parameters())
            for name, parameter in self.parameters.items():
                parameter.data = fresh[name].data


class ModelSleep:
    """Sleep and wake of the model; used on the event loop alone."""

    def __init__(
        self,
        weights: DroppableWeights,
        call: Call,
        opened: Callable[[], int],
        restored: Callable[[], None],
    ):
        """`opened` tells how many requests are open; `restored` hears of weights read again."""
        self._weights = weights
        self._call = call
        self._opened = opened
        self._restored = restored
        self._changing = asyncio.Lock()
        self.asleep = False
        """True from the beginning of a sleep until it has woken."""

    async def sleep(self) -> None:
        """Drops the weights once the open requests have ended; one that sleeps sleeps on."""
        async with self._changing:
            if not self.asleep:
                self.asleep = True
                while self._opened():  # noqa: ASYNC110
                    await asyncio.sleep(_POLL_SECONDS)
                await self._call(self._weights.drop)

    async def wake(self) -> None:
        """Reads the weights again; raises what the loader does, and sleeps on."""
        async with self._changing:
            if self.asleep:
                await self._call(self._weights.restore)
                self._restored()
                self.asleep = False

    @asynccontextmanager
    async def awake(self) -> AsyncIterator[None]:
        """Holds sleep back; raises ApiError 404 for one that sleeps."""
        async with self._changing:
            if self.asleep:
                raise asleep()
            yield
