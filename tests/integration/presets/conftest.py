"""The engine of vLLM that answers for the models of these tests."""

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.environments.vllm_env import turn, vllm_python

from windlass.engine_arguments import EngineArguments
from windlass_agent.engines.port import EngineSpec
from windlass_agent.engines.vllm_engine import VllmEngine

_PROGRAM = Path(__file__).with_name("vllm_answers.py")
_OF_ADAPTERS = ("--enable-lora", "--max-loras", "--max-cpu-loras", "--max-lora-rank")


class Vllm:
    """A process that asks vLLM about one model after the other; another one follows its death."""

    def __init__(self, scratch: Path):
        self._engine = VllmEngine(vllm_python())
        self._scratch = scratch
        self._process: subprocess.Popen[str] | None = None

    def ask(self, model: Path, task: str = "", **question: Any) -> dict[str, Any]:
        """What it says of a model, or why it does not serve it."""
        given = {"dtype": "float32", "eager": True, "kv_cache_bytes": 2**27, "max_concurrency": 8}
        rank = {"task": task} if task else {"max_adapter_rank": 16}
        spec = EngineSpec(
            model_dir=model,
            served_name="toy",
            endpoint="unix:///run/e/s",
            max_adapters=1,
            arguments=EngineArguments.model_validate(given | rank),
            scratch=self._scratch,
        )
        # Without the program, and what loads adapters where there is none.
        flags = self._engine.command(spec)[3:]
        if not task and not question["adapter"]:
            flags = [one for one in flags if not one.startswith(_OF_ADAPTERS)]
        process = self._started(spec)
        assert process.stdin
        assert process.stdout
        process.stdin.write(json.dumps({"flags": flags, "task": task, **question}) + "\n")
        process.stdin.flush()
        for line in process.stdout:
            if line.startswith("answer:"):
                told: dict[str, Any] = json.loads(line.removeprefix("answer:"))
                return told
        return {"refused": f"the process ended with {process.wait()}"}

    def _started(self, spec: EngineSpec) -> "subprocess.Popen[str]":
        if self._process is None or self._process.poll() is not None:
            environment = {**os.environ, **self._engine.environment(spec)}
            # The engine itself, not a process of its own for each model.
            environment |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "HF_HUB_OFFLINE": "1"}
            with (self._scratch / "log").open("ab") as log:
                self._process = subprocess.Popen(
                    [self._engine.python, _PROGRAM],
                    env=environment,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                )
        return self._process

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


@pytest.fixture(scope="module")
def vllm() -> Iterator[Vllm]:
    with turn(), tempfile.TemporaryDirectory() as scratch:
        asked = Vllm(Path(scratch))
        try:
            yield asked
        finally:
            asked.close()
