"""The parts of a running engine, and how a request becomes sequences."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

import torch

from windlass.inference_api.errors import ApiError, asleep, bad_value, too_long, wrong_task
from windlass.inference_api.requests import SamplingParams
from windlass_agent.engines.builtin.constraints import Constraint, Grammars
from windlass_agent.engines.builtin.generation.adapters import Adapters, LoadedAdapter
from windlass_agent.engines.builtin.generation.metrics import EngineMetrics
from windlass_agent.engines.builtin.generation.model import LoadedModel, Task
from windlass_agent.engines.builtin.generation.scheduler import SequenceScheduler
from windlass_agent.engines.builtin.generation.sequence import Sequence, StepOutput
from windlass_agent.engines.builtin.generation.sleeping import ModelSleep
from windlass_agent.engines.builtin.generation.weight_updates import WeightVersions
from windlass_agent.engines.builtin.text.detokenize import Decode, Detokenizer
from windlass_agent.engines.builtin.tools.learning import Learner

T = TypeVar("T")
# Embedding batches wait here rather than all at once between two ticks.
EMBEDDINGS_AT_ONCE = 2


@dataclass(frozen=True, kw_only=True)
class EngineService:
    """Everything a handler needs."""

    model: LoadedModel
    scheduler: SequenceScheduler
    adapters: Adapters
    metrics: EngineMetrics
    grammars: Grammars
    tools: Learner
    sleep: ModelSleep
    versions: WeightVersions
    embedding_places: asyncio.Semaphore = field(
        default_factory=lambda: asyncio.Semaphore(EMBEDDINGS_AT_ONCE)
    )

    @contextmanager
    def use(self, model: str, *tasks: Task) -> Iterator[LoadedAdapter | None]:
        """Pins the adapter called `model` (None: the base) in memory.

        Raises ApiError 404 for no such model and in its sleep, 400 for one of none of the tasks.
        """
        if self.sleep.asleep:
            raise asleep()
        with self.adapters.use(model) as adapter:
            task = self.model.task
            if adapter is not None:
                task = "score" if adapter.scores else "generate"
            if task not in tasks:
                raise wrong_task(model, task)
            yield adapter

    async def passed(self, work: Callable[[], T]) -> T:
        """Runs a pass of a batch in one of the places for it, which it has until it is over."""
        await self.embedding_places.acquire()
        return await self.scheduler.call(work, self.embedding_places.release)

    def room(self, prompt: list[int], wanted: int | None, *, param: str) -> int:
        """The number of tokens that may be generated; raises ApiError 400 for a prompt too long."""
        limit = self.model.context_length
        if not prompt:
            raise bad_value("the prompt is empty", param)
        if wanted is None and len(prompt) < limit:
            return limit - len(prompt)
        if len(prompt) + (1 if wanted is None else wanted) > limit:
            raise too_long(len(prompt), wanted or 0, limit=limit, param=param)
        return wanted or 0

    def check_tokens(self, ids: list[int], *, param: str) -> None:
        """Raises ApiError 400 for an id that the model does not have."""
        if any(not 0 <= token < self.model.vocabulary_size for token in ids):
            size = self.model.vocabulary_size
            raise bad_value(f"token ids must be from 0 to {size - 1}", param)

    def start(
        self,
        work: list[tuple[list[int], SamplingParams]],
        adapter: LoadedAdapter | None,
        *,
        request_ids: list[str],
        constraint: Constraint | None = None,
        decode: Decode | None = None,
    ) -> AsyncIterator[tuple[Sequence, StepOutput]]:
        """Generates one answer to each prompt, each held to `constraint`; raises ApiError.

        `request_ids` are by what each of them can be aborted.
        `decode` makes text of tokens where it is not the tokenizer's that leaves special ones out.
        """
        for _, params in work:
            self.check_tokens([token for token, _ in params.logit_bias], param="logit_bias")
        sink: asyncio.Queue[tuple[Sequence, StepOutput | Exception]] = asyncio.Queue()
        key = adapter.key if adapter else None
        sequences = [self._sequence(index, *one, key, sink) for index, one in enumerate(work)]
        for sequence, request_id in zip(sequences, request_ids, strict=True):
            sequence.request_id = request_id
            sequence.constraint = constraint.copy() if constraint else None
            if decode is not None:
                sequence.detokenizer = Detokenizer(decode)
        return self.scheduler.generate(sequences)

    def _sequence(
        self,
        index: int,
        prompt: list[int],
        params: SamplingParams,
        adapter: str | None,
        sink: asyncio.Queue[tuple[Sequence, StepOutput | Exception]],
    ) -> Sequence:
        generator = torch.Generator(self.model.device)
        if params.seed is None:
            generator.seed()
        else:
            generator.manual_seed(params.seed)
        return Sequence(
            prompt=prompt,
            params=params,
            index=index,
            adapter=adapter,
            eos=self.model.eos,
            detokenizer=Detokenizer(self.model.tokenizer.decode),
            sink=sink,
            generator=generator,
        )


def fail_unhealthy(service: EngineService) -> None:
    """Raises ApiError 503 when the model's thread is gone."""
    if not service.scheduler.healthy:
        raise ApiError(
            "The engine has stopped. Try again later.", status=503, code="engine_stopped"
        )
