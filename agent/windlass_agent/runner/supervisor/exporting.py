"""A trained model in the other forms that its job asks for, made by a process of its own."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from windlass.api.runner.v1 import runner_pb2 as pb
from windlass.confinement import Bare, Confinement, Walls, python_paths
from windlass.core.telemetry import logger
from windlass_agent.machine.program_output import last_error
from windlass_agent.memory import out_of_memory_kills
from windlass_agent.runner.protocol import outcome
from windlass_agent.runner.protocol.outcome import Failure
from windlass_agent.runner.reporting.reporter import Reporter
from windlass_agent.runner.supervisor.trainer import TrainerProcess

MODULE = "windlass_agent.runner.export.entry"
GGUF_FILE = "model-f16.gguf"
# Of the entry: the model has no such form.
_UNSUPPORTED = 2
_ADAPTER_CONFIG = "adapter_config.json"

_log = logger("runner")


@dataclass(frozen=True)
class Exported:
    """Results of an export: a folder of merged weights, and files."""

    merged: Path | None = None
    files: list[Path] = field(default_factory=list)


class Exporting:
    """Merges an adapter into its base, and writes GGUF."""

    def __init__(
        self,
        workdir: Path,
        reporter: Reporter,
        *,
        python: str,
        env: Mapping[str, str],
        confinement: Confinement | None = None,
    ) -> None:
        self._workdir = workdir
        self._reporter = reporter
        self._python = python
        self._env = env
        self._confinement = confinement or Bare()
        self._asked: frozenset[int] = frozenset()
        self._name = ""

    async def begin(self, assignment: pb.Assignment) -> None:
        """Notes what is asked for; raises Failure for a form that the base cannot have."""
        self._asked, self._name = frozenset(assignment.exports), assignment.model_name
        if pb.EXPORT_GGUF not in self._asked:
            return
        code = await self._run("--check", f"--gguf={self._workdir / GGUF_FILE}")
        if code:
            raise self._failure(code)

    async def make(self) -> Exported:
        """Makes the forms asked for; what fails is said, since the model itself is sound."""
        if not self._asked:
            return Exported()
        is_adapter = (self._output / _ADAPTER_CONFIG).exists()
        wants_gguf = pb.EXPORT_GGUF in self._asked
        if not is_adapter and not wants_gguf:
            self._reporter.info("The fine-tuned model has complete weights: nothing is merged.")
            return Exported()
        self._reporter.phase("exporting", "Exporting the fine-tuned model.")
        folder = self._workdir / "export"
        gguf = [f"--gguf={folder / GGUF_FILE}", f"--name={self._name}"] if wants_gguf else []
        kills = out_of_memory_kills()
        if code := await self._run(*gguf):
            failure = self._failure(code, memory_kills=out_of_memory_kills() - kills)
            self._reporter.warn(f"The model was not exported: {failure.message}")
            return Exported()
        merges = is_adapter and pb.EXPORT_MERGED in self._asked
        return Exported(
            merged=self._merged if merges else None, files=sorted(folder.glob("*.gguf"))
        )

    async def _run(self, *flags: str) -> int:
        folders = {
            "model": self._workdir / "inputs" / "model",
            "weights": self._output,
            "merged": self._merged,
        }
        command = [self._python, "-m", MODULE]
        command += [text for name, path in folders.items() for text in (f"--{name}", str(path))]
        process = await TrainerProcess.start(
            [*command, *flags],
            env=self._env,
            walls=self._walls(),
            log=self._log,
            confinement=self._confinement,
        )
        try:
            return await asyncio.shield(process.exited)
        finally:
            process.kill()
            await process.exited

    def _walls(self) -> Walls:
        """The walls of an exporter: the model, the trained weights, and its output folder."""
        written = [self._merged, self._workdir / "export", self._workdir / "scratch"]
        for folder in written:
            folder.mkdir(exist_ok=True)
        return Walls(
            readable=(*python_paths(), self._workdir / "inputs" / "model", self._output),
            writable=(*written, self._workdir / "empty"),
            folder=self._workdir / "empty",
            tied=True,
        )

    def _failure(self, code: int, *, memory_kills: int = 0) -> Failure:
        """Returns why the exporter failed; what it printed goes to the job's log."""
        output = outcome.last_output(self._log)
        if code == _UNSUPPORTED:
            return Failure("export_not_supported", last_error(output), param="windlass.export")
        _log.error("export_failed", code=code, output=output)
        return outcome.of_code(code, output, memory_kills=memory_kills, who="The exporter")

    @property
    def _output(self) -> Path:
        return self._workdir / "output"

    @property
    def _merged(self) -> Path:
        return self._workdir / "merged"

    @property
    def _log(self) -> Path:
        return self._workdir / "export.log"
