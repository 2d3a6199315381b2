"""What each framework makes of a TrainJob: pure, by the label of its runtime."""

from windlass_agent.frameworks import sources
from windlass_agent.frameworks.dispatch import complete, refusals
from windlass_agent.frameworks.objects import Refusal, Runtime, Trainer

__all__ = ["Refusal", "Runtime", "Trainer", "complete", "refusals", "sources"]
