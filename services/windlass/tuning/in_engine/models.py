"""Models of runs: those that trainers have, and those that are engines; pure."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from windlass.tuning.domain import in_engine
from windlass.tuning_api.trainers.records import TrainableModel

# The engine itself refuses ids beyond its vocabulary, and what exceeds its context.
_MOST_CONTEXT, _MOST_VOCABULARY = 2**20, 2**31 - 1


class RunModels:
    """The model of each run."""

    def __init__(self, models: Sequence[TrainableModel]):
        self._models = {model.name: model for model in models}

    def of(self, run: sa.Row[Any]) -> TrainableModel | None:
        """Returns the model of a run; None for one that is no longer here."""
        if in_engine(run.user_metadata):
            return engine_model(run.base_model)
        return self._models.get(run.base_model)


def engine_model(name: str) -> TrainableModel:
    """Returns a served model as runs see it."""
    return TrainableModel(
        name=name,
        max_context_length=_MOST_CONTEXT,
        max_rank=0,
        vocabulary_size=_MOST_VOCABULARY,
    )
