"""Completion and validation of TrainJobs by the framework label of their runtime. Pure.

It imports `windlass.backends` and `windlass.kubernetes`, and nothing else of the agent.
"""

from windlass_agent.frameworks import sources
from windlass_agent.frameworks.dispatch import complete, refusals
from windlass_agent.frameworks.objects import TrainerSpec, TrainingRuntime, TrainJobRefusal

__all__ = ["TrainJobRefusal", "TrainerSpec", "TrainingRuntime", "complete", "refusals", "sources"]
