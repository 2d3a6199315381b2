"""The one thread that owns the model: continuous batching, a token per sequence and tick."""

import asyncio
import math
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any, TypeVar

import torch

from windlass.core.telemetry import logger
from windlass.inference_api.errors import ApiError, overloaded, too_complex
from windlass.weight_versions import WeightsTorn
from windlass_agent.engines.builtin.generation.adapter_weights import AdapterWeights
from windlass_agent.engines.builtin.generation.lane import Lane, Prefill
from windlass_agent.engines.builtin.generation.metrics import EngineMetrics
from windlass_agent.engines.builtin.generation.model import LoadedModel
from windlass_agent.engines.builtin.generation.sequence import Sequence, StepOutput
from windlass_agent.engines.builtin.text.tokenizer import TextPair

# Prompt tokens per tick: more would make running streams stutter.
PREFILL_TOKENS = 512

# After which nothing is computed in this process: another one has the device, or the weights, anew.
_LOST = (torch.AcceleratorError, WeightsTorn)

T = TypeVar("T")
_log = logger("engine")


class SequenceScheduler:
    """Runs sequences on the model, in the order of their arrival, `max_concurrency` at once.

    Methods are the event loop's; what begins with `_` below `_run` is the thread's.
    """

    def __init__(
        self,
        model: LoadedModel,
        weights: AdapterWeights,
        *,
        max_concurrency: int,
        max_waiting: int,
        metrics: EngineMetrics,
        lost: Callable[[], None] = lambda: None,
    ):
        """`lost` is called once the thread has ended by an error, after the answers of all."""
        self._model = model
        self._weights = weights
        self._max_concurrency = max_concurrency
        self._max_open = max_concurrency + max_waiting
        self._metrics = metrics
        self._when_lost = lost
        self._loop = asyncio.get_running_loop()
        self._wake = threading.Condition()
        self._arrived: deque[Sequence] = deque()
        self._calls: deque[Callable[[Exception | None], None]] = deque()
        self._stopping = False
        self._lost = False
        self._open = 0
        self._waiting: deque[Sequence] = deque()
        self._prefills: list[Prefill] = []
        self._lanes: dict[str | None, Lane] = {}
        self._outbox: list[tuple[Sequence, StepOutput | Exception]] = []
        self._thread = threading.Thread(target=self._run, name="scheduler", daemon=True)
        self._thread.start()

    @property
    def healthy(self) -> bool:
        """True if the thread lives and has its device."""
        return self._thread.is_alive() and not self._lost

    @property
    def has_caches(self) -> bool:
        """True while keys and values of any sequence are held; to be read through `call`."""
        return bool(self._unfinished())

    async def generate(
        self, sequences: list[Sequence]
    ) -> AsyncIterator[tuple[Sequence, StepOutput]]:
        """Pieces of all `sequences`, which share one sink, as they come.

        Raises ApiError when the line is full. Closing the iterator frees their places.
        """
        if not self.healthy or self._open + len(sequences) > self._max_open:
            raise overloaded()
        self._open += len(sequences)
        try:
            self._notify(lambda: self._arrived.extend(sequences))
            left = len(sequences)
            while left:
                sequence, item = await sequences[0].sink.get()
                if isinstance(item, Exception):
                    raise item
                left -= item.finish_reason is not None
                yield sequence, item
        finally:
            self._open -= len(sequences)
            self._notify(lambda: _cancel(sequences))

    def embed(self, inputs: list[list[int]], adapter: str | None) -> list[list[float]]:
        """Vectors of a batch; to be run through `call`."""
        self._weights.activate(adapter)
        self._metrics.prompt_tokens.inc(sum(len(ids) for ids in inputs))
        return self._model.embed(inputs)

    def score(self, inputs: list[list[int]], adapter: str | None) -> list[float]:
        """Scores of a batch by a model that has them; to be run through `call`."""
        self._weights.activate(adapter)
        self._metrics.prompt_tokens.inc(sum(len(ids) for ids in inputs))
        if adapter is None and self._model.classifies:
            return self._model.classify(inputs)
        head = self._model.head if adapter is None else self._weights.head(adapter)
        if head is None:
            raise ApiError(
                "This model generates text and cannot score it. Use a reward model.",
                status=500,
                code="engine_error",
            )
        return self._model.score(inputs, head)

    def classify(self, pairs: list[TextPair]) -> list[float]:
        """The fit of two texts to each other, as the model says it; to be run through `call`."""
        self._weights.activate(None)
        inputs, types = [pair.ids for pair in pairs], [pair.types for pair in pairs]
        self._metrics.prompt_tokens.inc(sum(map(len, inputs)))
        values = self._model.classify(inputs, types if all(types) else None)
        if self._model.activation == "none":
            return values
        return [1 / (1 + math.exp(-min(max(value, -700), 700))) for value in values]

    def abort(self, request_ids: frozenset[str]) -> None:
        """Ends sequences of some requests with what they have; to be run through `call`."""
        for one in self._unfinished():
            if one.request_id in request_ids:
                one.finished = True
                self._metrics.finished.labels("abort").inc()
                piece = StepOutput(text=one.filter.flush(), finish_reason="abort")
                self._outbox.append((one, piece))

    async def call(self, work: Callable[[], T], over: Callable[[], None] = lambda: None) -> T:
        """Runs `work` between two ticks, where nothing else touches the model.

        Work whose caller has left meanwhile is not begun. `over` is called once nothing of it
        runs, whether or not anybody waits. Raises ApiError where the thread has ended.
        """
        if not self.healthy:
            over()
            raise overloaded()
        answer: asyncio.Future[T] = self._loop.create_future()

        def run(lost: Exception | None) -> None:
            try:
                if lost is not None:
                    raise lost
                if not answer.cancelled():
                    self._post(_resolve, answer, work())
            except Exception as error:
                self._post(_fail, answer, error)
                _end_if_lost(error)
            finally:
                self._post(over)

        self._notify(lambda: self._calls.append(run))
        return await answer

    async def stop(self) -> None:
        """Ends the thread after its tick; what still runs is left unanswered."""

        def stop() -> None:
            self._stopping = True

        self._notify(stop)
        await asyncio.to_thread(self._thread.join)

    def _notify(self, change: Callable[[], None]) -> None:
        with self._wake:
            change()
            self._wake.notify()

    def _run(self) -> None:
        try:
            with torch.inference_mode():
                while self._collect():
                    self._tick()
                    self._deliver()
        except Exception as error:
            self._post(self._lose, error)

    def _lose(self, error: Exception) -> None:
        """Fails all that is open, on the loop, where nothing is added meanwhile."""
        self._lost = True
        self._give_up(self._unfinished(), error)
        self._deliver()
        while self._calls:
            with suppress(*_LOST):
                self._calls.popleft()(error)
        self._post(self._when_lost)

    def _unfinished(self) -> list[Sequence]:
        decoding = [one for lane in self._lanes.values() for one in lane.sequences]
        prefilling = [prefill.sequence for prefill in self._prefills]
        known = [*tuple(self._arrived), *self._waiting, *prefilling, *decoding]
        return [one for one in known if not one.over]

    def _collect(self) -> bool:
        """Waits for work and takes it in; False to end."""
        with self._wake:
            busy = self._waiting or self._prefills or self._lanes
            while not (busy or self._arrived or self._calls or self._stopping):
                self._wake.wait()
            self._waiting.extend(self._arrived)
            self._arrived.clear()
            call = self._calls.popleft() if self._calls else None
        if call is not None:
            call(None)
        self._drop_over()
        return not self._stopping

    def _drop_over(self) -> None:
        # Lanes drop theirs when they rebatch, but an idle one must not run for them.
        self._waiting = deque(one for one in self._waiting if not one.over)
        self._prefills = [one for one in self._prefills if not one.sequence.over]
        self._lanes = {
            key: lane
            for key, lane in self._lanes.items()
            if any(not one.over for one in lane.sequences)
        }

    def _tick(self) -> None:
        self._admit()
        budget = PREFILL_TOKENS
        while self._prefills and budget > 0:
            budget -= self._prefill(self._prefills[0], budget)
        for lane in list(self._lanes.values()):
            self._decode(lane)
        self._metrics.running.set(self._running())
        self._metrics.waiting.set(len(self._waiting))

    def _running(self) -> int:
        lanes = self._lanes.values()
        decoding = sum(not one.over for lane in lanes for one in lane.sequences)
        return decoding + len(self._prefills)

    def _admit(self) -> None:
        for _ in range(min(self._max_concurrency - self._running(), len(self._waiting))):
            self._prefills.append(Prefill(self._model, self._waiting.popleft()))

    def _prefill(self, prefill: Prefill, budget: int) -> int:
        sequence = prefill.sequence
        try:
            self._weights.activate(sequence.adapter)
            used, piece = prefill.advance(budget)
        except Exception as error:
            _end_if_lost(error)
            self._prefills.remove(prefill)
            self._give_up([sequence], error)
            return 0
        if piece is not None:
            self._prefills.remove(prefill)
            self._metrics.prompt_tokens.inc(len(sequence.prompt))
            self._metrics.first_token.observe(time.monotonic() - sequence.submitted_at)
            self._emit(sequence, piece)
            if not sequence.over:
                key = sequence.adapter
                self._lanes.setdefault(key, Lane(self._model, key)).join(prefill)
        return used

    def _decode(self, lane: Lane) -> None:
        unfinished = [one for one in lane.sequences if not one.over]
        try:
            self._weights.activate(lane.adapter)
            for sequence, piece in lane.step():
                self._emit(sequence, piece)
        except Exception as error:
            _end_if_lost(error)
            del self._lanes[lane.adapter]
            self._give_up(unfinished, error)

    def _emit(self, sequence: Sequence, piece: StepOutput) -> None:
        if sequence.generated:
            self._count_token(sequence)
        if sequence.constraint is not None and sequence.constraint.failed:
            self._refuse(sequence)
            return
        if piece.finish_reason:
            self._metrics.finished.labels(piece.finish_reason).inc()
        self._outbox.append((sequence, piece))

    def _count_token(self, sequence: Sequence) -> None:
        now = time.monotonic()
        self._metrics.generated_tokens.inc()
        if sequence.token_at:
            self._metrics.inter_token.observe(now - sequence.token_at)
        sequence.token_at = now

    def _give_up(self, sequences: list[Sequence], error: Exception) -> None:
        _log.error("generation_failed", sequences=len(sequences), exc_info=error)
        for one in sequences:
            one.finished = True
            self._metrics.finished.labels("error").inc()
            failure = ApiError(
                "The engine failed to generate. Its log says why.", status=500, code="engine_error"
            )
            self._outbox.append((one, failure))

    def _refuse(self, sequence: Sequence) -> None:
        sequence.finished = True
        self._metrics.finished.labels("error").inc()
        self._outbox.append((sequence, too_complex()))

    def _deliver(self) -> None:
        if self._outbox:
            items, self._outbox = self._outbox, []
            self._post(_put_all, items)

    def _post(self, function: Callable[..., None], *arguments: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:
            # The loop is closed: nobody waits for an answer any more.
            self._stopping = True


def _end_if_lost(error: Exception) -> None:
    """Raises an error of the device itself, and of weights of no version."""
    if isinstance(error, _LOST):
        raise error


def _put_all(items: list[tuple[Sequence, StepOutput | Exception]]) -> None:
    for sequence, item in items:
        if not sequence.cancelled:
            sequence.sink.put_nowait((sequence, item))


def _cancel(sequences: list[Sequence]) -> None:
    for sequence in sequences:
        sequence.cancelled = True


def _resolve(answer: "asyncio.Future[T]", result: T) -> None:
    if not answer.done():
        answer.set_result(result)


def _fail(answer: "asyncio.Future[T]", error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)
