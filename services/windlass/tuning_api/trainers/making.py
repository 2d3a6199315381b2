"""Makes the trainer that a configuration names, and says beforehand what is wrong with it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
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
from windlass.tuning_api.trainers.remote.launched import TrainerLauncher
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
    maker = _Maker(settings, commands, models, seating, elsewhere)
    return TrainersByModel(
        [maker.of_adapters(name) for name in commands],
        DedicatedTrainers(
            maker.of_run,
            SessionSamplers(maker.of_session, most=max(settings.full_parameter_trainers, 1)),
        ),
    )


@dataclass(frozen=True)
class _Maker:
    """Makes trainers of base models, each in a process of this machine or in a cluster."""

    settings: TuningSection
    commands: Mapping[str, TrainerCommand]
    models: Mapping[str, TrainableModel]
    seating: Seating | None
    elsewhere: Elsewhere | None

    def of_adapters(self, name: str) -> RemoteTrainer:
        """The trainer of all adapters of a base model; in a cluster, in the operator's place."""
        settings = self.settings
        wish = PodWish(
            "trainer",
            self.models[name],
            "",
            settings.adapter_cluster,
            max_rank=settings.max_rank,
            host_project=settings.adapter_project,
        )
        return self._placed(wish, SeatedWorkload(name))

    def of_run(self, run: Run) -> Trainer:
        """The trainer of one run of all parameters."""
        model, settings = self.models[run.base_model], self.settings
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
        return self._placed(wish, SeatedWorkload(run.base_model, run.id, model.parameters))

    def of_session(self, request: SampleRequest, replica: int) -> RemoteTrainer:
        """A sampler of a session, of which there may be several."""
        # What was saved is a model, whatever engine trained it.
        wish = PodWish(
            "sampler",
            self.models[request.base_model],
            request.session_id,
            request.cluster.name or self.settings.full_parameter_cluster,
            max_rank=self.settings.max_rank,
            resources=request.cluster.resources,
        )
        workload = SeatedWorkload(request.base_model, request.session_id, replica=replica)
        return self._placed(wish, workload)

    def _placed(self, wish: PodWish, workload: SeatedWorkload) -> RemoteTrainer:
        """A trainer in the cluster that is named, or else here."""
        launcher: TrainerLauncher
        seating: Seating | None
        if wish.cluster and self.elsewhere is not None:
            launcher = seating = self.elsewhere(wish)
        else:
            seating = self.seating
            launcher = replace(
                self.commands[wish.model.name],
                is_full=wish.is_full,
                engine=wish.engine,
                processes=wish.processes,
            )
        return RemoteTrainer(
            wish.model,
            launcher,
            idle_seconds=self.settings.trainer_idle_seconds,
            seating=seating,
            workload=workload,
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
