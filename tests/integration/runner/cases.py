"""Setup of a runner test: an assignment, a process, and the agent that it talks to."""

import asyncio
import contextlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil
from tests.support.agents.runner_agent import TOKEN, RunnerAgent
from tests.support.processes.forked import ForkServer
from tests.support.waiting import until

from windlass.api.models.v1 import models_pb2
from windlass.api.runner.v1 import runner_pb2 as pb
from windlass.backends import Sizing, adapters, get_backend
from windlass.confinement import (
    Bare,
    ConfinedCommand,
    Confinement,
    Walls,
    WorkloadLimits,
    python_paths,
)
from windlass.demo import questions

_DEADLINE_SECONDS = 120
# `python -m windlass_agent.runner`, which starts its trainers with the Python that comes first.
_RUNNER = (
    "import runpy, sys; sys.executable = sys.argv.pop(1); "
    "runpy.run_module('windlass_agent.runner', run_name='__main__', alter_sys=True)"
)


class Case:
    """One job of a test, in a folder of its own."""

    def __init__(self, folder: Path, agent: RunnerAgent, model: Path, forks: ForkServer) -> None:
        self.agent = agent
        self._forks = forks
        self.model = agent.store / "model"
        shutil.copytree(model, self.model, ignore=shutil.ignore_patterns("*.sha256"))
        self._folder = folder
        self._adapter: Path | None = None
        self._runners: list[asyncio.subprocess.Process] = []

    @property
    def workdir(self) -> Path:
        return self._folder / f"attempt-{self.agent.assignment.attempt}"

    def chats(self, count: int) -> list[Any]:
        return [question.to_row() for question in questions.split()[0][:count]]

    def preferences(self, count: int) -> list[Any]:
        rows = []
        for row in self.chats(count):
            asked, answer = row["messages"]
            worse = {"role": "assistant", "content": answer["content"].upper()}
            rows.append(
                {
                    "input": {"messages": [asked]},
                    "preferred_output": [answer],
                    "non_preferred_output": [worse],
                }
            )
        return rows

    def labelled(self, count: int) -> list[Any]:
        """Good and bad answers, one of each to every question."""
        return [
            {"prompt": row["input"]["messages"], "completion": row[answer], "label": label}
            for row in self.preferences(count)
            for answer, label in (("preferred_output", True), ("non_preferred_output", False))
        ]

    def prompts(self, count: int) -> list[Any]:
        """Questions without answers, for a grader that knows the right one."""
        rows = (row["messages"] for row in self.chats(count))
        return [{"messages": [asked], "answer": answer["content"]} for asked, answer in rows]

    def teach(self, model: Path) -> None:
        """Gives the assignment a teacher: the files of a folder."""
        folder = self.agent.store / "teacher"
        shutil.copytree(model, folder, ignore=shutil.ignore_patterns("*.sha256"))
        files = [self.agent.add_file(path, path.name) for path in sorted(folder.iterdir())]
        self.agent.assignment.companions.add(role="teacher", files=files)

    def continue_from(self, folder: Path) -> None:
        """Has later assignments begin with the adapter in a folder."""
        self._adapter = self.agent.store / "adapter"
        shutil.copytree(folder, self._adapter)

    def assign(
        self,
        *,
        method: str = "supervised",
        rows: Sequence[Any] | None = None,
        validation: bool = False,
        held_out: Sequence[Any] | None = None,
        epochs: int = 1,
        seed: int = 7,
        rate: float = 1,
        grader: Any = None,
        processes: int = 1,
        targets: tuple[str, ...] = (),
        **extra: Any,
    ) -> None:
        """Sets the assignment; a row that is bytes is written as it is.

        `validation` gives a validation file of the usual rows, `held_out` one of these; `targets`
        are the layers of a preset.
        """
        rows = self.chats(24) if rows is None else rows
        backend = get_backend("trl").from_openai(
            method=method,
            hyperparameters={
                "n_epochs": epochs,
                "batch_size": 8,
                "learning_rate_multiplier": rate,
                **({} if grader is None else {"compute_multiplier": 0.5}),
            },
            seed=seed,
            sizing=Sizing(
                examples=len(rows),
                model_bytes=3_000_000,
                processes=processes,
                lora_targets=targets,
            ),
            extra=extra,
            grader=grader,
            **({} if self._adapter is None else {"adapter": _shape(self._adapter)}),
        )
        assignment = pb.Assignment(
            job_id="ftjob-1",
            attempt=1,
            backend="trl",
            schema_version=1,
            config=json.dumps(backend.to_document()).encode(),
            framework="trl",
            num_nodes=extra.get("num_nodes", 1),
            base_model="tiny-base",
            model_files=[
                self.agent.add_file(path, path.name) for path in sorted(self.model.iterdir())
            ],
            training_file=self._data("train.jsonl", rows),
        )
        if self._adapter is not None:
            files = [self.agent.add_file(path, path.name) for path in self._adapter.iterdir()]
            assignment.companions.add(role=adapters.ROLE, files=files)
        if validation or held_out:
            valid = held_out or (self.chats(8) if grader is None else self.prompts(8))
            assignment.validation_file.CopyFrom(self._data("valid.jsonl", valid))
        self.agent.assignment = assignment

    def evaluate(self, rows: Sequence[Any], grader: Any, **settings: Any) -> None:
        """Has the assignment compare the result on rows."""
        asked = {"max_examples": 100, "max_completion_tokens": 24, "seed": 7} | settings
        evaluation = pb.Evaluation(
            file=self._data("held_out.jsonl", rows), grader=json.dumps(grader).encode(), **asked
        )
        self.agent.assignment.evaluation.CopyFrom(evaluation)

    def resume_from(self, step: int, *, max_steps: int | None = None) -> None:
        """Sets the assignment of the next attempt: the state of `step`, and fewer steps.

        A state within an epoch has its weights itself; otherwise they are those of a checkpoint.
        """
        assignment = self.agent.assignment
        if max_steps is not None:
            config = json.loads(assignment.config)
            assignment.config = json.dumps({**config, "max_steps": max_steps}).encode()
        assignment.resume.step = step
        saved = (pb.ARTIFACT_KIND_CHECKPOINT, pb.ARTIFACT_KIND_TRAINING_STATE)
        artifacts = [a for a in self.agent.artifacts.values() if a.committed and a.step == step]
        assert artifacts
        for artifact in artifacts:
            if artifact.kind in saved:
                for path in sorted(artifact.folder.iterdir()):
                    assignment.resume.files.append(self.agent.add_file(path, path.name))
        self.agent.begin_attempt()

    async def start(
        self,
        *flags: str,
        node: int = 0,
        walls: Confinement | None = None,
        token: int | None = None,
        cold: bool = False,
        python: str = "",
        environ: Mapping[str, str] | None = None,
    ) -> asyncio.subprocess.Process:
        """Starts a runner as an agent does, the token in a pipe; each node has its own folder.

        `walls` are what an agent that confines starts it with, `token` is a pipe that it comes by.
        TRL's trainers are forks of one that has its libraries; a `cold` one starts as any other
        process, for a test of processes. `python` starts what the runner starts.
        """
        name = self.workdir.name
        workdir = self.workdir.with_name(f"{name}-{node}" if node else name)
        read = token_pipe() if token is None else token
        command = (
            *(
                sys.executable,
                "-c",
                _RUNNER,
                python or self._python(cold=cold or walls is not None),
            ),
            *("--agent", f"unix:{self.agent.socket}", "--workdir", str(workdir)),
            *("--token-fd", str(read), "--device", "cpu", *flags),
            *(() if walls is None else ("--confined",)),
        )
        with self._launch(command, workdir, walls) as launch:
            runner = await asyncio.create_subprocess_exec(
                *launch.command,
                pass_fds=(read, *launch.descriptors),
                start_new_session=True,
                env={
                    **os.environ,
                    "AWS_SECRET_ACCESS_KEY": "not for a trainer",
                    # Threads that spin for each other are slow where tests run side by side.
                    "OMP_NUM_THREADS": "1",
                    **(environ or {}),
                },
            )
        os.close(read)
        self._runners.append(runner)
        return runner

    def _python(self, *, cold: bool) -> str:
        is_forked = not cold and self.agent.assignment.framework == "trl"
        return str(self._forks.python) if is_forked else sys.executable

    def _launch(
        self, command: tuple[str, ...], workdir: Path, walls: Confinement | None
    ) -> contextlib.AbstractContextManager[ConfinedCommand]:
        if walls is not None:
            workdir.mkdir(exist_ok=True)
            self.agent.socket.chmod(0o666)
            walls.give(workdir.name, workdir)
        within = Walls(
            readable=(*python_paths(), self.agent.socket),
            writable=(workdir,),
            folder=workdir,
            network=True,
            nests=True,
        )
        limits = WorkloadLimits(memory=8 * 2**30)
        return (walls or Bare()).launch(command, within, name=workdir.name, limits=limits)

    async def until(self, condition: Callable[[], Any]) -> None:
        """Waits for a condition; fails after two minutes."""
        try:
            await until(condition, _DEADLINE_SECONDS)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.log()}") from error

    def trainers(self, runner: asyncio.subprocess.Process) -> list[psutil.Process]:
        """The processes of a runner's session but for itself."""
        return [
            process
            for process in psutil.process_iter()
            if process.pid != runner.pid and _session(process) == runner.pid
        ]

    def errors(self) -> tuple[str, str, str]:
        """Code, message and field of a failure."""
        finish = self.agent.finish
        assert finish is not None, self.log()
        assert finish.outcome == pb.OUTCOME_FAILED
        return finish.error_code, finish.error_message, finish.error_param

    def log(self) -> str:
        path = self.workdir / "log"
        return path.read_text()[-3000:] if path.exists() else ""

    async def close(self) -> None:
        for runner in self._runners:
            with contextlib.suppress(ProcessLookupError):
                runner.kill()
            await runner.wait()

    def _data(self, name: str, rows: Sequence[Any]) -> models_pb2.FileUrl:
        path = self.agent.store / name
        lines = (row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows)
        path.write_bytes(b"\n".join(lines) + b"\n")
        return self.agent.add_file(path, name)


def _shape(adapter: Path) -> dict[str, Any]:
    content = (adapter / "adapter_config.json").read_bytes()
    return adapters.AdapterShape.parse(content).to_document()


def token_pipe() -> int:
    """A pipe that holds a token."""
    read, write = os.pipe()
    os.write(write, TOKEN.encode())
    os.close(write)
    return read


def _session(process: psutil.Process) -> int:
    try:
        return os.getsid(process.pid)
    except ProcessLookupError:
        return -1
