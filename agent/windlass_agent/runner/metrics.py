"""A trainer's measurements under OpenAI's names, and the result file made of them."""

import csv
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

RESULT_FILE = "step_metrics.csv"
_TRAIN = {
    "loss": "train_loss",
    "mean_token_accuracy": "train_mean_token_accuracy",
    "learning_rate": "learning_rate",
    "grad_norm": "grad_norm",
    "tokens_per_second": "tokens_per_second",
    "rewards/accuracies": "train_reward_accuracy",
    "rewards/margins": "train_reward_margin",
}
# Every evaluation goes through the whole validation file, so both of OpenAI's names hold.
_VALID = {
    "eval_loss": ("valid_loss", "full_valid_loss"),
    "eval_mean_token_accuracy": (
        "valid_mean_token_accuracy",
        "full_valid_mean_token_accuracy",
    ),
    "eval_rewards/accuracies": ("valid_reward_accuracy",),
    "eval_rewards/margins": ("valid_reward_margin",),
}
# The columns of OpenAI's result file, and where each comes from.
_COLUMNS = {
    "train_loss": "train_loss",
    "train_accuracy": "train_mean_token_accuracy",
    "valid_loss": "valid_loss",
    "valid_mean_token_accuracy": "valid_mean_token_accuracy",
}
_NOT_FOR_CHECKPOINTS = frozenset({"learning_rate", "grad_norm", "tokens_per_second"})


def openai_values(logs: Mapping[str, float]) -> dict[str, float]:
    """Renames a trainer's values; drops those that have no name with OpenAI or us."""
    values = {name: logs[key] for key, name in _TRAIN.items() if key in logs}
    for key, names in _VALID.items():
        if key in logs:
            values.update(dict.fromkeys(names, logs[key]))
    return values


class History:
    """What was measured at each step of the job, earlier attempts included."""

    def __init__(self) -> None:
        self._steps: dict[int, dict[str, float]] = {}

    def add(self, step: int, values: Mapping[str, float]) -> None:
        """Adds values to a step."""
        self._steps.setdefault(step, {}).update(values)

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
        """What a checkpoint at `step` is described by."""
        values = self._steps.get(step, {})
        return {k: v for k, v in values.items() if k not in _NOT_FOR_CHECKPOINTS}

    def write(self, path: Path) -> None:
        """Writes the result file: a row for each step, a cell left empty where nothing is known."""
        with path.open("w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["step", *_COLUMNS])
            writer.writerows(self._rows())

    def _rows(self) -> Iterable[list[Any]]:
        for step, values in sorted(self._steps.items()):
            yield [step, *(values.get(key, "") for key in _COLUMNS.values())]
