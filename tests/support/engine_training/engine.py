"""A vLLM for CPUs with the plugin, as `pip install windlass-vllm` beside it would make it."""

import contextlib
import json
import os
import signal
import subprocess
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from tests.support.engine_training import stopping
from tests.support.environments.vllm_env import VERSION, turn, vllm_python
from tests.support.processes.windlass import free_port
from tests.support.waiting import wait_until

PLUGIN = Path(__file__).parents[3] / "plugin"
KEY = "a key for training alone"
NAME = "tiny"
START_SECONDS = 900
_STREAMED = 64
_ARGUMENTS = (
    *("--max-model-len=384", "--dtype=float32", "--enforce-eager", "--max-num-seqs=8"),
    *("--kv-cache-memory-bytes=268435456", "--host=127.0.0.1", f"--served-model-name={NAME}"),
    "--worker-extension-cls=windlass_vllm.engine.extension.SharedWeightsWorker",
)


@dataclass(frozen=True)
class TrainedVllm:
    """A running engine; `private` is the folder in which it shares its weights."""

    url: str
    process: "subprocess.Popen[bytes]"
    log: Path
    private: Path
    model: Path

    def post(self, path: str, body: object = None, key: str | None = KEY) -> httpx.Response:
        """Posts with the key of training, or another."""
        headers = {"authorization": f"Bearer {key}"} if key else {}
        return httpx.post(self.url + path, json=body, headers=headers, timeout=60)

    def get(self, path: str) -> Any:
        """What a route of training says."""
        headers = {"authorization": f"Bearer {KEY}"}
        return httpx.get(self.url + path, headers=headers, timeout=60).raise_for_status().json()

    def train(self, body: dict[str, Any]) -> str:
        """The id of a new job."""
        answer = self.post("/train", body)
        assert answer.status_code == 202, answer.text
        return str(answer.json()["job_id"])

    def ended(self, job: str, seconds: float = 240) -> dict[str, Any]:
        """A job once it has ended."""

        def ended() -> dict[str, Any] | None:
            assert self.process.poll() is None, self.log.read_text(errors="replace")[-3000:]
            found: dict[str, Any] = self.get(f"/train/status/{job}")
            return found if found["status"] not in ("queued", "running") else None

        return wait_until(ended, seconds=seconds)

    def complete(self, ids: list[int], tokens: int, **words: Any) -> dict[str, Any]:
        """The first choice of a greedy completion of token ids."""
        body = {"model": NAME, "prompt": ids, "max_tokens": tokens, "temperature": 0} | words
        answer = httpx.post(f"{self.url}/v1/completions", json=body, timeout=120)
        found: dict[str, Any] = answer.raise_for_status().json()["choices"][0]
        return found

    def workers(self) -> list[int]:
        """Process ids of training workers that live."""
        found = []
        for one in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                words = (one / "cmdline").read_bytes().split(b"\0")
                mine = f"WINDLASS_VLLM_FOLDER={self.private}".encode()
                if b"windlass_vllm.training.worker" in words and mine in (
                    (one / "environ").read_bytes().split(b"\0")
                ):
                    found.append(int(one.name))
        return found

    def processes(self) -> dict[int, str]:
        """The command lines of all processes of the engine that live, by their ids."""
        found = {}
        for one in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError, ValueError):
                _, _, rest = (one / "stat").read_text().rpartition(")")
                state, _, group = rest.split()[:3]
                if int(group) == self.process.pid and state != "Z":
                    found[int(one.name)] = (one / "cmdline").read_bytes().decode(errors="replace")
        return found


def installed(folder: Path) -> str:
    """A path for PYTHONPATH on which vLLM finds the plugin and its entry points."""
    project = tomllib.loads((PLUGIN / "pyproject.toml").read_text())["project"]
    version = project["version"]
    metadata = folder / f"windlass_vllm-{version}.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: windlass-vllm\nVersion: {version}\n"
    )
    lines = []
    for group, entries in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in entries.items())]
    (metadata / "entry_points.txt").write_text("\n".join(lines))
    stopping.install(folder)
    return os.pathsep.join((str(PLUGIN), str(folder)))


@contextlib.contextmanager
def trained_vllm(
    model: Path, folder: Path, *, version: str = VERSION, **variables: str
) -> Iterator[TrainedVllm]:
    """Yields an engine that may be trained; skips where vLLM cannot be installed."""
    with turn(), next_vllm(model, folder, version=version, private=None, **variables) as engine:
        yield engine


@contextlib.contextmanager
def next_vllm(
    model: Path,
    folder: Path,
    *,
    version: str = VERSION,
    private: Path | None = None,
    **variables: str,
) -> Iterator[TrainedVllm]:
    """Yields an engine in the turn of one that was killed, whose `private` folder it may have."""
    python, port, log = vllm_python(version), free_port(), folder / "vllm.log"
    private = private or folder / "private"
    private.mkdir(exist_ok=True)
    environment = os.environ | {
        "PYTHONPATH": installed(folder / "site"),
        "VLLM_PLUGINS": "windlass_vllm",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "WINDLASS_VLLM_KEY": KEY,
        "WINDLASS_VLLM_FOLDER": str(private),
        **variables,
    }
    command = [str(python), "-m", "vllm.entrypoints.openai.api_server", f"--model={model}"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, f"--port={port}", *_ARGUMENTS],
            stdout=output,
            stderr=output,
            env=environment,
            start_new_session=True,
        )
        engine = TrainedVllm(f"http://127.0.0.1:{port}", process, log, private, model)
        try:
            _serving(engine)
            yield engine
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(30)
            # Those that a killed API server left are of its group.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _serving(engine: TrainedVllm) -> None:
    def answers() -> bool:
        said = engine.log.read_text(errors="replace")
        assert engine.process.poll() is None, said[-3000:]
        with contextlib.suppress(httpx.TransportError):
            return httpx.get(f"{engine.url}/health", timeout=5).is_success
        return False

    wait_until(answers, seconds=START_SECONDS)


class Streams:
    """Streams that run one after the other, and what broke of them."""

    def __init__(self, engine: TrainedVllm, ids: list[int]) -> None:
        self._engine, self._ids = engine, ids
        self.stopping = False
        self.ended = 0
        self.broken: list[str] = []
        # The first and the last step that each stream says it saw.
        self.steps: list[tuple[int, int]] = []

    def run(self) -> None:
        """Streams until it is to stop."""
        body = {"model": NAME, "prompt": self._ids, "max_tokens": _STREAMED, "ignore_eos": True}
        body |= {"stream": True, "stream_options": {"include_usage": True}, "temperature": 0}
        url = f"{self._engine.url}/v1/completions"
        while not self.stopping:
            try:
                self._stream(url, json.dumps(body))
            except (httpx.HTTPError, AssertionError) as error:
                self.broken.append(repr(error))
                return

    def _stream(self, url: str, body: str) -> None:
        headers = {"content-type": "application/json"}
        tokens, last = 0, ""
        with httpx.stream("POST", url, content=body, headers=headers, timeout=60) as answer:
            answer.raise_for_status()
            for line in answer.iter_lines():
                if line.startswith("data: {"):
                    usage = json.loads(line.removeprefix("data: ")).get("usage") or {}
                    tokens = usage.get("completion_tokens", tokens)
                elif line.startswith(": x-windlass-steps "):
                    first, _, end = line.rpartition(" ")[2].partition("-")
                    self.steps.append((int(first), int(end)))
                last = line if line.startswith("data: ") else last
        assert (tokens, last) == (_STREAMED, "data: [DONE]")
        self.ended += 1
