"""vLLM's router, with one vLLM for CPUs behind it: a serving stack as others run it."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
from tests.support.environments import made_once
from tests.support.environments.required import lacking
from tests.support.environments.vllm_env import turn, vllm_python
from tests.support.processes.windlass import free_port
from tests.support.waiting import wait_until

REQUIREMENTS = ("vllm-router==0.1.17",)
START_SECONDS = 900
_VLLM = (
    *("--max-model-len=384", "--dtype=float32", "--enforce-eager"),
    *("--kv-cache-memory-bytes=268435456", "--scheduling-policy=priority"),
    "--enable-prompt-tokens-details",
)
_VARIABLES = {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "VLLM_PLUGINS": ""}


@contextlib.contextmanager
def running_router(model: Path, name: str, folder: Path) -> Iterator[str]:
    """Yields the address of a router that has a model; skips where it cannot be installed."""
    try:
        router = made_once.environment("vllm-router-env", *REQUIREMENTS) / "vllm-router"
    except subprocess.CalledProcessError as error:
        lacking(f"vLLM's router cannot be installed: {error}")
    behind, front = free_port(), free_port()
    engine = [str(vllm_python()), "-m", "vllm.entrypoints.openai.api_server"]
    where = (f"--model={model}", f"--served-model-name={name}", f"--port={behind}")
    worker, url = f"http://127.0.0.1:{behind}", f"http://127.0.0.1:{front}"
    with (
        turn(),
        _process([*engine, *where, "--host=127.0.0.1", *_VLLM], folder / "vllm.log") as vllm,
    ):
        _wait(f"{worker}/health", vllm, folder / "vllm.log")
        words = [str(router), "--worker-urls", worker, "--host=127.0.0.1", f"--port={front}"]
        with _process(words, folder / "router.log") as process:
            _wait(f"{url}/v1/models", process, folder / "router.log")
            yield url


@contextlib.contextmanager
def _process(words: list[str], log: Path) -> Iterator["subprocess.Popen[bytes]"]:
    with log.open("wb") as output:
        process = subprocess.Popen(
            words,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env=os.environ | _VARIABLES,
        )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _wait(url: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    def answers() -> bool:
        assert process.poll() is None, log.read_text(errors="replace")[-3000:]
        with contextlib.suppress(httpx.TransportError):
            return httpx.get(url, timeout=5).is_success
        return False

    wait_until(answers, seconds=START_SECONDS)
