"""A trainer's measurements in the schema of docs/reference/metrics.md, and the result file."""

import csv
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

RESULT_FILE = "step_metrics.csv"
# What is measured in training, and again (with `eval_` before it) in each evaluation.
_MEASURES = {
    "loss": "loss",
    "mean_token_accuracy": "mean_token_accuracy",
    "entropy": "entropy",
    "rewards/accuracies": "reward_accuracy",
    "rewards/margins": "reward_margin",
    "rewards/chosen": "chosen_reward",
    "rewards/rejected": "rejected_reward",
    # Reward models.
    "accuracy": "reward_accuracy",
    "margin": "reward_margin",
    # Methods that sample completions.
    "reward": "mean_reward",
    "reward_std": "reward_std",
    "kl": "kl",
    "completions/mean_length": "mean_completion_length",
    "ungraded": "ungraded",
}
# Every evaluation goes through the whole validation file, so both of OpenAI's names hold.
_FULL = frozenset({"loss", "mean_token_accuracy", "mean_reward"})
# How training itself goes; by the same name everywhere.
_COURSE = frozenset({"learning_rate", "grad_norm", "tokens_per_second", "mfu", "peak_memory_bytes"})
# The columns of OpenAI's result file, and where each comes from.
_COLUMNS = {
    "train_loss": "train_loss",
    "train_accuracy": "train_mean_token_accuracy",
    "valid_loss": "valid_loss",
    "valid_mean_token_accuracy": "valid_mean_token_accuracy",
}
# Those that a job has which learns from rewards.
_REWARD_COLUMNS = {
    "train_reward_mean": "train_mean_reward",
    "valid_reward_mean": "valid_mean_reward",
}


def _names() -> dict[str, tuple[str, ...]]:
    names: dict[str, tuple[str, ...]] = {name: (name,) for name in _COURSE}
    for theirs, ours in _MEASURES.items():
        full = (f"full_valid_{ours}",) if ours in _FULL else ()
        names[theirs] = (f"train_{ours}",)
        names[f"eval_{theirs}"] = (f"valid_{ours}", *full)
    return names


_NAMES = _names()
SCHEMA = frozenset(name for several in _NAMES.values() for name in several)


def openai_values(logs: Mapping[str, float]) -> dict[str, float]:
    """Renames a trainer's values; drops those that have no name in the schema."""
    return {name: value for key, value in logs.items() for name in _NAMES.get(key, ())}


class History:
    """Metrics recorded at each step of the job, including earlier attempts."""

    def __init__(self) -> None:
        self._steps: dict[int, dict[str, float]] = {}
        self._times: dict[int, float] = {}

    def add(self, step: int, values: Mapping[str, float]) -> None:
        """Adds values to a step, as measured now."""
        self._steps.setdefault(step, {}).update(values)
        self._times.setdefault(step, time.time())

    def points(self) -> Iterable[tuple[int, float, dict[str, float]]]:
        """Steps in their order: number, Unix seconds, values.

        What an earlier attempt measured bears the time at which this one took it up.
        """
        for step, values in sorted(self._steps.items()):
            yield step, self._times[step], values

    def load(self, resumed: Path) -> None:
        """Adds what the `trainer_state.json` of a resumed checkpoint remembers, if it is there."""
        state = resumed / "trainer_state.json"
        if not state.exists():
            return
        for entry in msgspec.json.decode(state.read_bytes())["log_history"]:
            numbers = {k: v for k, v in entry.items() if isinstance(v, int | float)}
            if values := openai_values(numbers):
                self.add(int(entry["step"]), values)

    def at(self, step: int) -> dict[str, float]:
        """The measures that describe a checkpoint at `step`."""
        values = self._steps.get(step, {})
        return {k: v for k, v in values.items() if k not in _COURSE}

    def write(self, path: Path) -> None:
        """Writes the result file: a row for each step, a cell left empty where nothing is known."""
        rewarded = any(
            name in values for values in self._steps.values() for name in _REWARD_COLUMNS.values()
        )
        columns = _COLUMNS | (_REWARD_COLUMNS if rewarded else {})
        with path.open("w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["step", *columns])
            writer.writerows(self._rows(columns.values()))

    def _rows(self, names: Iterable[str]) -> Iterable[list[Any]]:
        for step, values in sorted(self._steps.items()):
            yield [step, *(values.get(name, "") for name in names)]
