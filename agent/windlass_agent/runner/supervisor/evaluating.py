"""The comparison of a trained model with the one that training began with, on held-out examples."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from windlass import graders
from windlass.api.runner.v1 import runner_pb2 as pb
from windlass.backends import adapters
from windlass.confinement import Walls, python_paths
from windlass.core.telemetry import logger
from windlass.graders import Grader
from windlass_agent.memory import out_of_memory_kills
from windlass_agent.runner.grading.comparison import compare, graded
from windlass_agent.runner.grading.judges import Judges
from windlass_agent.runner.grading.rewards import Reward
from windlass_agent.runner.grading.scripts import check_sandbox
from windlass_agent.runner.protocol import outcome
from windlass_agent.runner.protocol.link import AgentLink, CallRefused
from windlass_agent.runner.protocol.outcome import Failure, Stopped
from windlass_agent.runner.reporting.reporter import Reporter
from windlass_agent.runner.supervisor.config import RunnerConfig
from windlass_agent.runner.supervisor.signals import StopSignal, unless
from windlass_agent.runner.supervisor.trainer import TrainerProcess, environment
from windlass_agent.runner.transfer import dataset, inputs

MODULE = "windlass_agent.runner.evaluation.entry"
RESULT_FILE = "evaluation.jsonl"
AT = "windlass.evaluation"
_LONGEST_SECONDS = 3600.0
_LARGEST_BYTES = 64 * 2**20
_log = logger("runner")

Row = TypeVar("Row", bound=msgspec.Struct)


class HeldOut(msgspec.Struct, frozen=True):
    """An example to answer: its place in the file, and its fields as JSON for the grader."""

    line: int
    item: str


class Answered(msgspec.Struct, frozen=True):
    """Both models' answers to an example; None where it leaves no room for one."""

    base: str | None
    fine_tuned: str | None


@dataclass(frozen=True)
class _Asked:
    settings: pb.Evaluation
    grader: Grader
    adapter: Path | None
    examples: int


class Evaluating:
    """Has both models answer and the job's grader compare; a failure costs the comparison alone."""

    def __init__(
        self, config: RunnerConfig, link: AgentLink, reporter: Reporter, stop: StopSignal
    ) -> None:
        self._config = config
        self._link = link
        self._reporter = reporter
        self._stop = stop
        self._folder = config.workdir / "evaluation"
        self._asked: _Asked | None = None

    async def begin(self, assignment: pb.Assignment) -> None:
        """Reads the examples, before hours of training; raises Failure for what cannot be used."""
        if not assignment.HasField("evaluation"):
            return
        settings = assignment.evaluation
        grader = graders.parse(msgspec.json.decode(settings.grader))
        await asyncio.to_thread(check_sandbox, grader, at=f"{AT}.grader")
        (self._folder / "answers").mkdir(parents=True, exist_ok=True)
        examples = await asyncio.to_thread(
            dataset.convert,
            self._config.workdir / "inputs" / inputs.EVALUATION_FILE,
            self._questions,
            read="evaluation",
            param="evaluation_file",
            field=f"{AT}.file",
            grader=grader,
            most=settings.max_examples,
        )
        begins = any(each.role == adapters.ROLE for each in assignment.companions)
        adapter = self._config.workdir / "inputs" / "companions" / adapters.ROLE
        self._asked = _Asked(settings, grader, adapter if begins else None, examples)

    async def make(self) -> list[Path]:
        """Compares and reports, and returns the file of all answers; says why there is none."""
        if self._asked is None:
            return []
        self._reporter.phase(
            "evaluating",
            f"Evaluating the fine-tuned model on {self._asked.examples} held-out examples.",
        )
        try:
            async with asyncio.timeout(_LONGEST_SECONDS):
                return [await unless(self._stop.requested, self._compare(self._asked))]
        except CallRefused:
            raise
        except Stopped:
            why = "The job was asked to stop."
        except TimeoutError:
            why = f"It took longer than {_LONGEST_SECONDS / 60:g} minutes."
        except Exception as error:
            # The model is sound whatever happens here.
            if not isinstance(error, Failure):
                _log.error("evaluation_failed", exc_info=error)
            why = outcome.of_error(error, trained_tokens=0).error_message
        self._reporter.warn(f"The fine-tuned model was not evaluated: {why}")
        return []

    async def _compare(self, asked: _Asked) -> Path:
        await self._answer(asked)
        answered = _read(self._answers, Answered)
        pairs = list(zip(_read(self._questions, HeldOut), answered, strict=True))
        fitting = [(one, said) for one, said in pairs if said.base is not None]
        if not fitting:
            raise Failure("evaluation_failed", "No example leaves room for an answer.")
        before = [(said.base or "", one.item.encode()) for one, said in fitting]
        after = [(said.fine_tuned or "", one.item.encode()) for one, said in fitting]
        rewards = await graded(asked.grader, before + after, self._judges(asked.grader))
        base, fine_tuned = rewards[: len(fitting)], rewards[len(fitting) :]
        path = self._config.workdir / RESULT_FILE
        _write(path, fitting, base, fine_tuned)
        result = compare(base, fine_tuned)
        self._reporter.evaluation(
            result, _sentence(asked.grader.name, result, left_out=len(pairs) - len(fitting))
        )
        return path

    async def _answer(self, asked: _Asked) -> None:
        kills = out_of_memory_kills()
        process = await TrainerProcess.start(
            self._command(asked),
            env=environment(self._config.environ, self._config.workdir, self._config.metrics),
            walls=self._walls(),
            log=self._log,
            confinement=self._config.confinement,
        )
        try:
            code = await asyncio.shield(process.exited)
        finally:
            process.kill()
            await process.exited
        if code:
            kills = out_of_memory_kills() - kills
            output = outcome.last_output(self._log)
            _log.error("evaluation_failed", code=code, output=output)
            raise outcome.of_code(code, output, memory_kills=kills, who="The process")

    def _command(self, asked: _Asked) -> list[str]:
        settings = asked.settings
        given: dict[str, Any] = {
            "model": self._config.workdir / "inputs" / "model",
            "weights": self._config.workdir / "output",
            "questions": self._questions,
            "answers": self._answers,
            "device": self._config.device,
            "max-tokens": settings.max_completion_tokens,
            "temperature": settings.temperature,
            "seed": settings.seed,
        }
        if asked.adapter is not None:
            given["adapter"] = asked.adapter
        flags = [f"--{name}={value}" for name, value in given.items()]
        return [self._config.python, "-m", MODULE, *flags]

    def _walls(self) -> Walls:
        workdir = self._config.workdir
        return Walls(
            readable=(
                *python_paths(), workdir / "inputs", workdir / "output", self._questions,
            ),
            writable=(self._answers.parent, workdir / "scratch", workdir / "empty"),
            folder=workdir / "empty",
            tied=True,
        )  # fmt: skip

    def _judges(self, grader: Grader) -> Judges | None:
        if not graders.models_asked(grader):
            return None
        return Judges(
            self._link,
            self._reporter,
            name=grader.name,
            patience_seconds=self._config.patience_seconds,
            evaluation=True,
        )

    @property
    def _questions(self) -> Path:
        return self._folder / "questions.jsonl"

    @property
    def _answers(self) -> Path:
        return self._folder / "answers" / "answers.jsonl"

    @property
    def _log(self) -> Path:
        return self._config.workdir / "evaluation.log"


def _read(path: Path, kind: type[Row]) -> list[Row]:
    if path.stat().st_size > _LARGEST_BYTES:
        raise Failure("evaluation_failed", f"Its answers exceed {_LARGEST_BYTES} bytes.")
    decoder = msgspec.json.Decoder(kind)
    return [decoder.decode(line) for line in path.read_bytes().splitlines()]


def _write(
    path: Path,
    examples: Sequence[tuple[HeldOut, Answered]],
    base: Sequence[Reward],
    fine_tuned: Sequence[Reward],
) -> None:
    """Writes both answers to each example, with their rewards."""
    with path.open("wb") as file:
        for (one, said), before, after in zip(examples, base, fine_tuned, strict=True):
            row = {
                "line": one.line,
                "base": {"answer": said.base, **msgspec.structs.asdict(before)},
                "fine_tuned": {"answer": said.fine_tuned, **msgspec.structs.asdict(after)},
            }
            file.write(msgspec.json.encode(row) + b"\n")


def _sentence(name: str, result: pb.EvaluationResult, *, left_out: int) -> str:
    said = (
        f"The grader {name!r} gives a mean reward of {result.fine_tuned.mean_reward:.3f} on "
        f"{result.examples} held-out examples, and {result.base.mean_reward:.3f} before training: "
        f"better on {result.wins}, the same on {result.ties}, worse on {result.losses}."
    )
    return f"{said} {left_out} leave no room for an answer." if left_out else said
