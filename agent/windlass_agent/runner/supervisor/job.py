"""The steps of a job, in order."""

import asyncio
import contextlib
import hashlib
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from windlass import graders
from windlass.api.runner.v1 import runner_pb2 as pb
from windlass.backends import BackendError, InvalidConfig, LLMBackend, RenderContext, get_backend
from windlass.confinement import Walls
from windlass.core.killpoints import reach
from windlass.core.telemetry import logger
from windlass_agent.machine.program_output import tail
from windlass_agent.memory import memory_limit
from windlass_agent.runner.grading.judges import Judges
from windlass_agent.runner.grading.scripts import check_sandbox, runs_here
from windlass_agent.runner.protocol.link import AgentLink, CallRefused
from windlass_agent.runner.protocol.outcome import (
    OUT_OF_MEMORY,
    Failure,
    Outcome,
    OutcomeKind,
    Stopped,
    leaf,
    of_error,
)
from windlass_agent.runner.reporting import model_card
from windlass_agent.runner.reporting.metrics import RESULT_FILE, History
from windlass_agent.runner.reporting.model_card import Data, ModelCard
from windlass_agent.runner.reporting.reporter import Reporter
from windlass_agent.runner.supervisor import oom_advice
from windlass_agent.runner.supervisor.config import RunnerConfig
from windlass_agent.runner.supervisor.evaluating import Evaluating
from windlass_agent.runner.supervisor.exporting import Exporting
from windlass_agent.runner.supervisor.signals import StopSignal, unless
from windlass_agent.runner.supervisor.spare import SpareTrainer
from windlass_agent.runner.supervisor.trainer import GRADER_FILE, environment
from windlass_agent.runner.supervisor.training import TrainerLaunch, TrainingSupervisor
from windlass_agent.runner.tracking.tracking import AttemptTracking
from windlass_agent.runner.transfer import dataset, inputs
from windlass_agent.runner.transfer.checkpoints import (
    CheckpointQueue,
    LocalCheckpoint,
    NoCheckpoints,
)
from windlass_agent.runner.transfer.inputs import Inputs
from windlass_agent.runner.transfer.upload import Uploader

# Before the command of a trainer that posts its status.
_STATUS_SERVER = "windlass_agent.runner.trainers.status_server"
# Of a trainer's log, for its last words.
_SAID_BYTES = 64 * 1024

_log = logger("runner")


class AttemptRunner:
    """One attempt, from its assignment to its outcome."""

    def __init__(
        self,
        config: RunnerConfig,
        *,
        link: AgentLink,
        reporter: Reporter,
        session: aiohttp.ClientSession,
        stop: StopSignal,
        spare: SpareTrainer | None = None,
    ) -> None:
        self._config = config
        self._spare = spare
        self._workdir = config.workdir
        self._link = link
        self._reporter = reporter
        self._inputs = Inputs(
            link,
            session,
            config.workdir / "inputs",
            patience_seconds=config.patience_seconds,
            warn=reporter.warn,
        )
        self._uploader = Uploader(
            link, session, patience_seconds=config.patience_seconds, warn=reporter.warn
        )
        self._stop = stop
        self._history = History()
        self._tracking = AttemptTracking(reporter)
        self._exporting = Exporting(
            self._workdir,
            reporter,
            python=config.python,
            env=environment(config.environ, self._workdir, config.metrics),
            confinement=config.confinement,
        )
        self._evaluating = Evaluating(config, link, reporter, stop)
        self._training: TrainingSupervisor | None = None

    async def run(self) -> Outcome:
        """Runs the job; every error becomes its outcome, except CallRefused."""
        try:
            outcome = await self._end()
            with contextlib.suppress(Stopped):
                papers = [self._workdir / RESULT_FILE, self._workdir / "output" / model_card.NAME]
                await unless(self._stop.forced, self._tracking.close(outcome.verdict, papers))
            return outcome
        finally:
            await self._tracking.leave()

    async def _end(self) -> Outcome:
        error: Exception | None = None
        try:
            await unless(self._stop.forced, self._steps())
        except Exception as raised:
            if isinstance(leaf(raised), CallRefused):
                raise
            error = raised
            if not isinstance(leaf(raised), Failure | Stopped):
                # The tenant reads what went wrong; where it did, only this log says.
                _log.error("runner_failed", exc_info=raised)
        tokens = self._training.trained_tokens if self._training else 0
        if error is None:
            return Outcome(verdict=OutcomeKind.SUCCEEDED, trained_tokens=tokens)
        return of_error(error, trained_tokens=tokens)

    async def _steps(self) -> None:
        self._reporter.phase("preparing", "Getting the model and the files.")
        card, launch = await unless(self._stop.requested, self._prepare())
        leads = self._config.world.leads
        self._reporter.phase("starting", "Starting the trainer.")
        kind = CheckpointQueue if leads else NoCheckpoints
        checkpoints = kind(self._uploader, self._reporter, self._history, card)
        self._training = TrainingSupervisor(self._reporter, checkpoints, self._history, self._stop)
        try:
            await self._training.run(launch, grace_seconds=self._config.grace_seconds)
        except Failure as failure:
            if failure.code != OUT_OF_MEMORY:
                raise
            log = tail(launch.log, _SAID_BYTES)
            raise oom_advice.explained(failure, card.config, log, limit=memory_limit()) from failure
        if leads:
            await self._publish(checkpoints, step=self._training.step)

    async def _prepare(self) -> tuple[ModelCard, TrainerLaunch]:
        self._config.make_folders()
        assignment = await self._link.assignment()
        self._check_nodes(max(1, assignment.num_nodes))
        document: dict[str, Any] = msgspec.json.decode(assignment.config)
        backend = _backend(assignment, document)
        if backend.grader is not None:
            await asyncio.to_thread(check_sandbox, graders.parse(backend.grader))
        await self._inputs.fetch(assignment)
        data = await asyncio.to_thread(
            self._convert, backend, assignment.HasField("validation_file")
        )
        card = ModelCard(
            job_id=assignment.job_id,
            attempt=assignment.attempt,
            base_model=assignment.base_model,
            backend=assignment.backend,
            config=document,
            data=data,
        )
        if self._config.world.leads:
            await self._evaluating.begin(assignment)
            await self._exporting.begin(assignment)
            self._tracking.begin(assignment, card)
        return card, self._launch(backend, assignment)

    def _check_nodes(self, asked: int) -> None:
        nodes = self._config.world.nodes
        if asked != nodes:
            raise Failure(
                "invalid_configuration",
                f"The job was created for {asked} nodes but runs on {nodes}.",
                param="windlass.resources.nodes",
            )

    def _convert(self, backend: LLMBackend, has_validation: bool) -> list[Data]:
        grader = None
        if backend.grader is not None:
            grader = graders.parse(backend.grader)
            (self._workdir / GRADER_FILE).write_bytes(msgspec.json.encode(backend.grader))
        parts = [(inputs.TRAINING_FILE, "train.jsonl", "training_file")]
        if has_validation:
            parts.append((inputs.VALIDATION_FILE, "test.jsonl", "validation_file"))
        data = []
        for source, target, param in parts:
            path = self._workdir / "inputs" / source
            rows = self._workdir / "dataset" / target
            count = dataset.convert(
                path, rows, read=backend.dataset_format, param=param, grader=grader
            )
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            data.append(Data(param.removesuffix("_file"), count, digest))
            path.unlink()
        return data

    def _launch(self, backend: LLMBackend, assignment: pb.Assignment) -> TrainerLaunch:
        context = RenderContext(
            model=self._workdir / "inputs" / "model",
            dataset=self._workdir / "dataset",
            output=self._workdir / "output",
            device=self._config.device,
            nodes=self._config.world.nodes,
            processes=self._config.world.processes,
            python=self._config.pythons.get(backend.framework, self._config.python),
            resume_from=self._resumed(assignment),
            has_validation=assignment.HasField("validation_file"),
            metrics=self._config.metrics,
            companions={
                each.role: self._workdir / "inputs" / "companions" / each.role
                for each in assignment.companions
            },
        )
        try:
            command = (*backend.to_command(context), *backend.to_args(context))
        except InvalidConfig as error:
            raise Failure("invalid_configuration", str(error), param=error.field) from error
        if backend.posts_status:
            command = (self._config.python, "-m", _STATUS_SERVER, *command)
        judges = self._judges(backend)
        return TrainerLaunch(
            command=command,
            env=self._config.variables(),
            walls=self._walls(backend, asks=judges is not None),
            confinement=self._config.confinement,
            log=self._config.log,
            metrics=self._config.metrics,
            judges=judges,
            grades=self._config.grades,
            world=self._config.world,
            spare=self._spare,
        )

    def _walls(self, backend: LLMBackend, *, asks: bool) -> Walls:
        grader = graders.parse(backend.grader) if backend.grader is not None else None
        nests = grader is not None and runs_here(grader)
        return self._config.walls(asks=asks, nests=nests)

    def _judges(self, backend: LLMBackend) -> Judges | None:
        if backend.grader is None or not graders.models_asked(graders.parse(backend.grader)):
            return None
        return Judges(
            self._link,
            self._reporter,
            name=backend.grader["name"],
            patience_seconds=self._config.patience_seconds,
        )

    def _resumed(self, assignment: pb.Assignment) -> Path | None:
        folder = self._workdir / "inputs" / "resume"
        if not assignment.HasField("resume"):
            return None
        if not (folder / "trainer_state.json").exists() or not list(folder.glob("*.safetensors")):
            self._reporter.warn("The saved state is incomplete: training starts over.")
            return None
        self._history.load(folder)
        self._reporter.info(f"Training continues after step {assignment.resume.step}.")
        return folder

    async def _publish(self, checkpoints: CheckpointQueue, *, step: int) -> None:
        reach("runner.trained")
        evaluated = await self._evaluating.make()
        exported = await self._exporting.make()
        self._reporter.phase("uploading", "Uploading the fine-tuned model.")
        result = self._workdir / RESULT_FILE
        self._history.write(result)
        files = [result, *await self._tracking.result_files(self._workdir, self._history)]
        files += [*evaluated, *exported.files]
        await self._uploader.upload(pb.ARTIFACT_KIND_RESULT_FILE, step=step, files=files)
        if exported.merged is not None:
            await checkpoints.upload_model(
                pb.ARTIFACT_KIND_MERGED,
                LocalCheckpoint(step, exported.merged),
                metrics=self._history.at(step),
            )
        final = LocalCheckpoint(step, self._workdir / "output")
        await checkpoints.upload_model(
            pb.ARTIFACT_KIND_FINAL, final, metrics=self._history.at(step)
        )
        reach("runner.published")
        self._reporter.info("The fine-tuned model is uploaded.")


def _backend(assignment: pb.Assignment, document: dict[str, Any]) -> LLMBackend:
    try:
        kind = get_backend(assignment.backend)
        return kind.from_document(document, assignment.schema_version)
    except (BackendError, InvalidConfig) as error:
        raise Failure("invalid_configuration", str(error)) from error
