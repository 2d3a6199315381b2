"""Metrics of a job, step by step, from its events."""

from typing import Any

Row = dict[str, Any]
# Points (step, value) of each series of a measure.
Panel = dict[str, list[tuple[float, float]]]
# What says where a measurement belongs.
PLACE = frozenset({"id", "attempt", "step", "total_steps", "epoch"})
_PARTS = ("train_", "valid_")
# What is plotted unless something else is asked for, in this order.
USUAL = (
    "loss",
    "mean_reward",
    "reward_margin",
    "reward_accuracy",
    "mean_token_accuracy",
)


class Measurements:
    """The measurements of a job; of a step that was made twice, by two attempts, the latest."""

    def __init__(self) -> None:
        self._steps: dict[int, Row] = {}

    def add(self, event: dict[str, Any]) -> Row | None:
        """The measurement in an event; None for one that has none."""
        data = event.get("data")
        if event.get("type") != "metrics" or not isinstance(data, dict) or "step" not in data:
            return None
        row = {"id": event["id"], **data}
        self._steps.setdefault(int(data["step"]), {}).update(row)
        return row

    @property
    def rows(self) -> list[Row]:
        """A row for each step: `step`, `total_steps`, `epoch`, and what was measured."""
        return [self._steps[step] for step in sorted(self._steps)]

    @property
    def names(self) -> list[str]:
        """The names that occur, `full_valid_…` left out where `valid_…` says the same."""
        known = {name for row in self._steps.values() for name in row} - PLACE
        return sorted(name for name in known if not name.startswith("full_"))

    def panel(self, measure: str) -> Panel:
        """The series of a measure, such as `loss` (`train_loss`, `valid_loss`) or `grad_norm`."""
        names = (measure, *(part + measure for part in _PARTS))
        series = {
            name: [
                (float(row["step"]), float(row[name])) for row in self.rows if _number(row, name)
            ]
            for name in names
        }
        return {name: points for name, points in series.items() if points}


def _number(row: Row, name: str) -> bool:
    return isinstance(row.get(name), int | float)
