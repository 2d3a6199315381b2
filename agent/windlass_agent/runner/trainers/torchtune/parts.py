"""The parts of a recipe that are ours: rows of tokens, padding, and the report of each step."""

import math
import signal
from array import array
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import torch
from torch import distributed
from torch.utils.data import Dataset
from torchtune.modules import TiedLinear

from windlass_agent.runner.protocol import trainer_events
from windlass_agent.runner.protocol.event_file import EventFile
from windlass_agent.runner.trainers.divergence import divergence
from windlass_agent.runner.trainers.meter import StepMeter
from windlass_agent.runner.trainers.saving import SaveClock

Row = dict[str, Any]


class Padding:
    """All that a recipe asks of a tokenizer whose work is done."""

    def __init__(self, pad_id: int) -> None:
        self.pad_id = pad_id


class TokenRows(Dataset[Row]):  # type: ignore[misc]  # mypy skips torch
    """Rows of token ids and labels from a file, each read when it is wanted.

    `tokens_read` counts the tokens of all that were wanted so far.
    """

    def __init__(self, tokenizer: Padding, *, source: str) -> None:
        self._file = Path(source).open("rb")  # noqa: SIM115 - open as long as the rows
        self._offsets = array("Q")
        offset = 0
        for line in self._file:
            self._offsets.append(offset)
            offset += len(line)
        self.tokens_read = 0

    def __len__(self) -> int:
        return len(self._offsets)

    def __getitem__(self, index: int) -> Row:
        """Returns a row by the names of TorchTune's collate functions."""
        self._file.seek(self._offsets[index])
        row: Row = msgspec.json.decode(self._file.readline())
        self.tokens_read += sum(len(ids) for name, ids in row.items() if name.endswith("input_ids"))
        if "input_ids" in row:
            return {"tokens": row["input_ids"], "labels": row["labels"]}
        return row


class Batches:
    """A recipe's batches: those of whole steps alone, and in the first epoch those not yet made.

    TorchTune would carry what fills no step into the next epoch, where nothing could go on from
    the one before. `before_step` is called between steps, in every process.
    """

    def __init__(
        self,
        loader: Any,
        *,
        steps: int,
        accumulation: int,
        made: int,
        before_step: Callable[..., None],
    ) -> None:
        self._loader = loader
        self._count = steps * accumulation
        self._accumulation = accumulation
        self._skipped = made * accumulation
        self._before_step = before_step

    def __getattr__(self, name: str) -> Any:
        """Any other attribute that a recipe asks of a loader."""
        return getattr(self._loader, name)

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[Any]:
        batches = iter(self._loader)
        first, self._skipped = self._skipped, 0
        read = self._loader.dataset.tokens_read
        for _ in range(first):
            next(batches)
        self._loader.dataset.tokens_read = read
        for index in range(first, self._count):
            if index % self._accumulation == 0:
                self._before_step(is_first=index == first)
            yield next(batches)


class EventLogger:
    """TorchTune's metric logger: what it is given becomes events, once `begin` said of what.

    Each process of a training has one, and they agree at each step; the first one's is told.
    """

    def begin(
        self,
        recipe: Any,
        events: EventFile,
        *,
        clock: SaveClock,
        total_steps: int,
        history: list[dict[str, Any]],
    ) -> None:
        """Takes over SIGTERM, and announces the first step; `history` is of those before it."""
        self._recipe, self._events, self._total_steps = recipe, events, total_steps
        self._clock = clock
        clock.restart()
        self.history = list(history)
        self._tokens_before = max((entry["trained_tokens"] for entry in history), default=0)
        self._is_together = distributed.is_initialized()
        self._tokens_read = 0
        self._asked = self.is_stopping = self.is_due = False
        signal.signal(signal.SIGTERM, self._stop)
        recipe._optimizer.register_step_post_hook(self._agree)
        self._meter = StepMeter()
        devices = distributed.get_world_size() if self._is_together else 1
        self._meter.begin(_Weights(recipe._model), devices=devices, tokens=0)
        self._write(trainer_events.Began)
        self._meter.step_began()

    @property
    def trained_tokens(self) -> int:
        """Tokens since the start of the job, earlier attempts included."""
        return self._tokens_before + self._tokens_read

    def log_config(self, config: Any) -> None:
        """Writes nothing: it holds paths of ours."""

    def log(self, name: str, data: Any, step: int) -> None:
        """Reports one value."""
        self.log_dict({name: data}, step)

    def log_dict(self, payload: Mapping[str, Any], step: int) -> None:
        """Reports a step; raises Failure when it has diverged."""
        self._meter.step_ended()
        numbers = {name: float(value) for name, value in payload.items()}
        numbers["learning_rate"] = numbers.pop("lr")
        if failure := divergence(numbers, step=step):
            raise failure
        finite = {name: value for name, value in numbers.items() if math.isfinite(value)}
        self.report(finite | self._meter.measure(self.trained_tokens - self._tokens_before))
        self._meter.step_began()

    def report(self, logs: dict[str, float]) -> None:
        """Reports what was measured at the step that is done."""
        entry = {"step": self._recipe.global_step, "trained_tokens": self.trained_tokens}
        self.history.append(entry | logs)
        self._write(trainer_events.Logged, logs=logs, trained_tokens=self.trained_tokens)

    def saved(self, folder: Path | None, *, to_resume: bool) -> None:
        """Announces a checkpoint, in the process that has its folder; the next step begins."""
        self._clock.restart()
        if folder is not None:
            self._write(trainer_events.Saved, path=str(folder), to_resume=to_resume)
        self._meter.step_began()

    def close(self) -> None:
        """Announces the end."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        self._write(trainer_events.Ended)

    def _write(self, kind: type[Any], **fields: Any) -> None:
        step = self._recipe.global_step
        epoch = step / self._recipe._steps_per_epoch
        self._events.write(kind(step=step, total_steps=self._total_steps, epoch=epoch, **fields))

    def _agree(self, *_: Any) -> None:
        """Sums what all have read, and agrees on what one of them wants, after an optimizer step.

        A process that saves or leaves alone would let the others wait for ever.
        """
        rows: TokenRows = self._recipe._dataloader.dataset
        due = self._clock.is_due(self._recipe.global_step + 1)
        said = [rows.tokens_read, int(self._asked), int(due)]
        if self._is_together:
            sums = torch.tensor(said, device=self._recipe._device)
            distributed.all_reduce(sums)
            said = sums.tolist()
        self._tokens_read, self.is_stopping, self.is_due = said[0], said[1] > 0, said[2] > 0

    def _stop(self, *_: Any) -> None:
        self._asked = True


class _Weights:
    """A model of TorchTune's as the meter asks of one."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self.config = SimpleNamespace(tie_word_embeddings=isinstance(model.output, TiedLinear))

    def get_nb_trainable_parameters(self) -> tuple[int, int]:
        """The number of trained weights, and of all weights."""
        sizes = [(each.numel(), each.requires_grad) for each in self._model.parameters()]
        return sum(size for size, trained in sizes if trained), sum(size for size, _ in sizes)

    def get_input_embeddings(self) -> Any:
        """The embedding, which is looked up only."""
        return self._model.tok_embeddings
