"""Torch's rendezvous variables, for processes that no launcher starts.

Kubeflow Trainer sets `PET_*`, which torchrun alone reads. Kubernetes puts a variable into those
that come after it, and Trainer's come last: so these are of the pod itself.
"""

from pathlib import PurePosixPath
from typing import Any

from windlass.kubernetes.labels import COMPLETION_INDEX, JOBSET_NAME
from windlass_agent.frameworks.objects import TrainerSpec, TrainingRuntime

_LAUNCHERS = frozenset({"torchrun", "tune", "accelerate", "deepspeed"})
_MODULES = frozenset({"torch.distributed.run", "torch.distributed.launch"})
# As Kubeflow Trainer has it for PET_MASTER_PORT.
_PORT = "29500"
_NAME = f"metadata.labels['{JOBSET_NAME}']"
_INDEX = f"metadata.annotations['{COMPLETION_INDEX}']"


def complete(trainer: TrainerSpec, runtime: TrainingRuntime) -> TrainerSpec:
    """Returns the trainer with its missing variables, unless its launcher sets them.

    One process is in each pod then, so the world is as large as there are nodes.
    """
    if _is_launched(trainer.command or runtime.command):
        return trainer
    wanted = {
        "JOBSET_NAME": _of_pod(_NAME),
        "MASTER_ADDR": {"value": "$(JOBSET_NAME)-node-0-0.$(JOBSET_NAME)"},
        "MASTER_PORT": {"value": _PORT},
        "WORLD_SIZE": {"value": str(trainer.placement(runtime).nodes)},
        "RANK": _of_pod(_INDEX),
    }
    set_already = trainer.variables | runtime.variables
    missing = [
        {"name": name, **content} for name, content in wanted.items() if name not in set_already
    ]
    given = (trainer.fields or {}).get("env") or ()
    return trainer.having(env=[*given, *missing]) if missing else trainer


def _is_launched(command: tuple[str, ...]) -> bool:
    match command:
        case (program, "-m", module, *_) if PurePosixPath(program).name.startswith("python"):
            return module in _MODULES
        case (program, *_):
            return PurePosixPath(program).name in _LAUNCHERS
        case _:
            return False


def _of_pod(path: str) -> dict[str, Any]:
    return {"valueFrom": {"fieldRef": {"fieldPath": path}}}
