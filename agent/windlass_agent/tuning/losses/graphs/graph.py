"""The document of a tenant's loss, as the engine reads it."""

from windlass.tuning_api.losses import graph
from windlass.tuning_api.losses.graph import InvalidLossGraph, LossGraph
from windlass_agent.tuning.requests.refusal import TuningRefused


def read_graph(document: str) -> LossGraph:
    """Reads a loss; raises TuningRefused for one that is not made of what is allowed."""
    try:
        return graph.read_graph(document)
    except InvalidLossGraph as error:
        message = f"the loss is refused: {error}"
        raise TuningRefused("invalid_loss_graph", message) from None
