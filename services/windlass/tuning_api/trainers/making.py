"""Makes the trainer that a configuration names, and says beforehand what is wrong with it."""

from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from windlass.core.config.check import Finding
from windlass.core.config.tuning import TuningSection
from windlass.tuning_api.trainers.dedicated import DedicatedTrainers
from windlass.tuning_api.trainers.described import UnreadableModel, described, parameters
from windlass.tuning_api.trainers.elsewhere import Elsewhere, PodWish
from windlass.tuning_api.trainers.engines import engine_names
from windlass.tuning_api.trainers.null import NullTrainer
from windlass.tuning_api.trainers.placed import TrainersByModel
from windlass.tuning_api.trainers.port import Trainer
from windlass.tuning_api.trainers.records import Run, SampleRequest, TrainableModel
from windlass.tuning_api.trainers.remote.process import TrainerCommand
from windlass.tuning_api.trainers.remote.trainer import RemoteTrainer
from windlass.tuning_api.trainers.seats import SeatedWorkload, Seating
from windlass.tuning_api.trainers.session_samplers import SessionSamplers


def check_trainer(settings: TuningSection) -> list[Finding]:
    """The findings on the models that are to be trained on."""
    return list(_findings(settings))


def make_trainer(
    settings: TuningSection,
    checkpoints: Path,
    sockets: Path,
    seating: Seating | None = None,
    elsewhere: Elsewhere | None = None,
) -> Trainer:
    """The trainer that the configuration names; without one, there are no models.

    Each process takes a seat first, where there is seating; those of clusters are made `elsewhere`.

    Raises UnreadableModel.
    """
    if settings.trainer == "null":
        return NullTrainer(settings.base_models)
    folders = settings.model_folders if settings.trainer == "lora" else {}
    commands = {
        name: TrainerCommand(
            model=name,
            folder=folder.resolve(),
            max_rank=settings.max_rank,
            checkpoints=checkpoints.resolve(),
            sockets=sockets,
        )
        for name, folder in folders.items()
    }
    models = {name: _model(settings, name, command) for name, command in commands.items()}
    idle_seconds = settings.trainer_idle_seconds

    def dedicated(workload: SeatedWorkload, *, engine: str, processes: int) -> RemoteTrainer:
        name = workload.base_model
        command = replace(commands[name], is_full=True, engine=engine, processes=processes)
        return RemoteTrainer(
            models[name], command, idle_seconds=idle_seconds, seating=seating, workload=workload
        )

    def placed(wish: PodWish, workload: SeatedWorkload) -> RemoteTrainer:
        """A trainer of its own, in the cluster that is named or here."""
        if not wish.cluster or elsewhere is None:
            return dedicated(workload, engine=wish.engine, processes=wish.processes)
        place = elsewhere(wish)
        return RemoteTrainer(
            wish.model, place, idle_seconds=idle_seconds, seating=place, workload=workload
        )

    def trainer_of(run: Run) -> Trainer:
        model = models[run.base_model]
        wish = PodWish(
            "trainer",
            model,
            run.id,
            run.cluster.name or settings.full_parameter_cluster,
            engine=settings.full_parameter_engine,
            processes=run.processes,
            max_rank=settings.max_rank,
            resources=run.cluster.resources,
        )
        return placed(wish, SeatedWorkload(run.base_model, run.id, model.parameters))

    def sampler_of(request: SampleRequest, replica: int) -> RemoteTrainer:
        # What was saved is a model, whatever engine trained it.
        wish = PodWish(
            "sampler",
            models[request.base_model],
            request.session_id,
            request.cluster.name or settings.full_parameter_cluster,
            max_rank=settings.max_rank,
            resources=request.cluster.resources,
        )
        workload = SeatedWorkload(request.base_model, request.session_id, replica=replica)
        return placed(wish, workload)

    def shared(name: str) -> RemoteTrainer:
        """The trainer of all adapters of a base model, here or in the operator's place."""
        if not settings.adapter_cluster or elsewhere is None:
            return RemoteTrainer(
                models[name], commands[name], idle_seconds=idle_seconds, seating=seating
            )
        wish = PodWish(
            "trainer",
            models[name],
            "",
            settings.adapter_cluster,
            max_rank=settings.max_rank,
            host_project=settings.adapter_project,
        )
        place = elsewhere(wish)
        return RemoteTrainer(models[name], place, idle_seconds=idle_seconds, seating=place)

    return TrainersByModel(
        [shared(name) for name in commands],
        DedicatedTrainers(
            trainer_of, SessionSamplers(sampler_of, most=max(settings.full_parameter_trainers, 1))
        ),
    )


def _model(settings: TuningSection, name: str, command: TrainerCommand) -> TrainableModel:
    model = described(name, command.folder, max_rank=settings.max_rank)
    if not (settings.full_parameter_trainers or settings.adapter_cluster):
        return model
    return replace(model, parameters=parameters(command.folder))


def _findings(settings: TuningSection) -> Iterator[Finding]:
    if settings.trainer != "lora":
        return
    key = "tuning.model_folders"
    if not settings.model_folders:
        yield Finding("error", key, "The lora trainer needs the folder of a base model.")
    if find_spec("torch") is None:
        yield Finding("error", "tuning.trainer", "lora needs torch: install windlass[train].")
    engine = settings.full_parameter_engine
    if engine and engine not in (installed := engine_names()):
        found = ", ".join(installed) or "none"
        text = f"No engine is named {engine!r}; installed: {found}."
        yield Finding("error", "tuning.full_parameter_engine", text)
    for name, folder in settings.model_folders.items():
        try:
            described(name, folder, max_rank=settings.max_rank)
            if settings.full_parameter_trainers or settings.adapter_cluster:
                parameters(folder)
        except UnreadableModel as error:
            yield Finding("error", f"{key}.{name}", f"{error}.")
