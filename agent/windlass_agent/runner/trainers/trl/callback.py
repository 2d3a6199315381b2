"""Trainer callback that writes the metrics file and handles SIGTERM."""

import math
import signal
from pathlib import Path
from typing import Any, NoReturn

from transformers import TrainerCallback

from windlass_agent.runner.protocol import trainer_events
from windlass_agent.runner.protocol.event_file import EventFile
from windlass_agent.runner.protocol.outcome import Failure
from windlass_agent.runner.trainers import ranks
from windlass_agent.runner.trainers.divergence import divergence
from windlass_agent.runner.trainers.meter import StepMeter
from windlass_agent.runner.trainers.saving import SaveClock

_TOKENS = "trained_tokens"
# What a process wants after a step; the highest wish of any is followed by all.
_GO_ON, _SAVE, _STOP = range(3)
_NO_STATE = (
    "Under ZeRO no training state is kept: once interrupted, the job starts over. "
    "The sharding fsdp2 keeps one."
)


class EventCallback(TrainerCallback):  # type: ignore[misc]  # mypy skips transformers
    """Reports steps, checkpoints and the end; saves and stops at the next step on SIGTERM.

    transformers' own `enable_jit_checkpoint` waits three seconds, announces no checkpoint, and
    evaluates and saves again on its way out.
    """

    def __init__(self, events: EventFile, clock: SaveClock) -> None:
        self._events = events
        self._clock = clock
        self._asked = False
        self._wish = _GO_ON
        self._meter = StepMeter()
        self._tokens_before = 0
        self._tokens = 0

    def on_train_begin(
        self, args: Any, state: Any, control: Any, model: Any = None, **_: Any
    ) -> None:
        """Takes over SIGTERM; counts tokens from where the resumed checkpoint left off."""
        signal.signal(signal.SIGTERM, self._stop)
        counts = [entry[_TOKENS] for entry in state.log_history if _TOKENS in entry]
        # Some trainers go on counting from a checkpoint, the others begin at zero.
        self._tokens = state.num_input_tokens_seen
        self._tokens_before = max(0, counts[-1] - self._tokens) if counts else 0
        self._meter.begin(model, devices=args.world_size, tokens=self._tokens)
        self._clock.restart()
        if args.deepspeed is not None:
            self._write(trainer_events.Noted, state, message=_NO_STATE)
        self._write(trainer_events.Began, state)

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Starts the clock of a step."""
        self._meter.step_began()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Stops the clock; saves a state where one is due, and ends here if it was asked to."""
        self._meter.step_ended()
        wish = self._own_wish(args, state)
        self._wish = wish if args.world_size == 1 else ranks.highest_of(wish, args)
        if state.global_step == state.max_steps:
            return
        if self._wish == _STOP:
            control.should_log = control.should_save = control.should_training_stop = True
        elif self._wish == _SAVE:
            control.should_save = True

    def _own_wish(self, args: Any, state: Any) -> int:
        if self._asked:
            return _STOP
        # The end of an epoch saves anyway. DeepSpeed's state is folders, which nobody keeps.
        if float(state.epoch).is_integer() or args.deepspeed is not None:
            return _GO_ON
        return _SAVE if self._clock.is_due(state.global_step) else _GO_ON

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Keeps a stop in the middle of an epoch from being taken for its end."""
        # Alone it need not ask the others, who would have to be asked as well.
        stopping = self._wish == _STOP or (self._asked and args.world_size == 1)
        if stopping and state.global_step < state.max_steps:
            control.should_save = control.should_evaluate = False

    def on_log(
        self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_: Any
    ) -> None:
        """Reports what was measured; fails the job when it has diverged."""
        numbers = {k: float(v) for k, v in (logs or {}).items() if isinstance(v, int | float)}
        if failure := divergence(numbers, step=state.global_step, scales_loss=args.fp16):
            self._fail(failure, state)
        finite = {name: value for name, value in numbers.items() if math.isfinite(value)}
        self._tokens = int(finite.get("num_tokens", self._tokens))
        if "loss" in finite:
            finite |= self._meter.measure(self._tokens)
        total = self._tokens_before + self._tokens
        # It travels in trainer_state.json, so that a later attempt counts on.
        state.log_history[-1][_TOKENS] = total
        self._write(trainer_events.Logged, state, logs=finite, trained_tokens=total)

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Announces a checkpoint."""
        path = Path(args.output_dir, f"checkpoint-{state.global_step}")
        if args.world_size > 1:
            ranks.gather_random_states(path, args)
        self._clock.restart()
        to_resume = self._wish == _SAVE
        self._wish = _GO_ON if to_resume else self._wish
        self._write(trainer_events.Saved, state, path=str(path), to_resume=to_resume)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Leaves at once when stopped early; otherwise lets the final model be written."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        self._write(trainer_events.Ended, state)
        if state.global_step < state.max_steps:
            raise SystemExit(0)

    def _fail(self, failure: Failure, state: Any) -> NoReturn:
        said = {"code": failure.code, "message": failure.message, "param": failure.param}
        self._write(trainer_events.Failed, state, **said)
        raise SystemExit(1)

    def _write(self, kind: type[Any], state: Any, **fields: Any) -> None:
        if state.is_local_process_zero:
            event = kind(
                step=state.global_step,
                total_steps=state.max_steps,
                epoch=state.epoch or 0.0,
                **fields,
            )
            self._events.write(event)

    def _stop(self, *_: Any) -> None:
        self._asked = True
