"""TorchTune: `tune run` with a recipe, its configuration and the paths that the runtime manages."""

from collections.abc import Iterator

from windlass.backends.torchtune import recipes
from windlass.kubernetes.labels import PREFIX
from windlass_agent.frameworks.objects import TrainerSpec, TrainingRuntime, TrainJobRefusal

ENTRYPOINT = ("tune", "run")
MODEL = PREFIX + "torchtune-model"
# Kubernetes puts in what Kubeflow Trainer sets.
_RENDEZVOUS = "--rdzv_endpoint=$(PET_MASTER_ADDR):$(PET_MASTER_PORT)"
_FIELDS = {
    "model": "spec.runtimeRef.name",
    "nodes": "spec.trainer.numNodes",
    "processes": "spec.trainer.numProcPerNode",
}


def complete(trainer: TrainerSpec, runtime: TrainingRuntime) -> TrainerSpec:
    """Returns the trainer with its whole command; another command than TorchTune's is kept."""
    is_bare = trainer.command == ENTRYPOINT or (not trainer.command and trainer.args)
    if not is_bare:
        return trainer
    place = trainer.placement(runtime)
    recipe = recipes.choose_recipe(_model(runtime), trainer.args, place)
    return trainer.having(
        command=[
            *ENTRYPOINT,
            *([_RENDEZVOUS] if place.needs_rendezvous else []),
            recipe.name,
            "--config",
            recipe.config,
            *(word for word in runtime.command if word.partition("=")[0] in recipes.MANAGED),
        ]
    )


def refusals(trainer: TrainerSpec, runtime: TrainingRuntime) -> Iterator[TrainJobRefusal]:
    """Yields what no recipe trains, and overrides that are the runtime's alone."""
    if trainer.command[:2] != ENTRYPOINT and not (not trainer.command and trainer.args):
        return
    place = trainer.placement(runtime)
    for found in recipes.refusals(_model(runtime), trainer.args, place):
        field = _FIELDS.get(found.subject, f"spec.trainer.args[{found.index}]")
        yield TrainJobRefusal(field, found.message)


def _model(runtime: TrainingRuntime) -> str:
    return runtime.annotations.get(MODEL) or recipes.model_of(runtime.name)
