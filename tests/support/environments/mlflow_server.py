"""A real MLflow server, in an environment of its own: some 100 packages."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from tests.support.clients.trust import trusted
from tests.support.environments import made_once
from tests.support.environments.required import lacking
from tests.support.processes.windlass import free_port
from tests.support.waiting import wait_until

REQUIREMENTS = ("mlflow==3.17.2", "Flask-WTF<2")
USER = "ada"
PASSWORD = "p4ss-of-a-test-alone"
START_SECONDS = 120
# It often waits for connections that nobody uses any more, and nothing is asked of it.
STOP_SECONDS = 3


@dataclass
class MlflowServer:
    """A running server that requires a user name and a password."""

    url: str
    folder: Path

    @property
    def http(self) -> httpx.Client:
        auth = (USER, PASSWORD)
        return httpx.Client(base_url=self.url, auth=auth, timeout=30, verify=trusted())

    def runs(self, experiment: str) -> list[Any]:
        """Returns the runs of an experiment, newest first; none if it does not exist."""
        with self.http as http:
            path = "/api/2.0/mlflow/experiments/get-by-name"
            found = http.get(path, params={"experiment_name": experiment}).json()
            if "experiment" not in found:
                return []
            search = {"experiment_ids": [found["experiment"]["experiment_id"]], "max_results": 50}
            answer = http.post("/api/2.0/mlflow/runs/search", json=search).json()
            return list(answer.get("runs", []))

    def history(self, run_id: str, metric: str) -> list[tuple[int, float]]:
        """Returns steps and values of a metric."""
        with self.http as http:
            query = {"run_id": run_id, "metric_key": metric}
            answer = http.get("/api/2.0/mlflow/metrics/get-history", params=query).json()
        return sorted((each.get("step", 0), each["value"]) for each in answer.get("metrics", []))

    def artifact(self, run_id: str, path: str) -> str:
        """Returns the text of a file of a run."""
        with self.http as http:
            answer = http.get("/get-artifact", params={"run_uuid": run_id, "path": path})
            answer.raise_for_status()
            return answer.text


def environment() -> Path:
    """The `bin` of MLflow's environment; raises CalledProcessError when it cannot be installed."""
    return made_once.environment("mlflow-env", *REQUIREMENTS)


@contextlib.contextmanager
def running(folder: Path) -> Iterator[MlflowServer]:
    """Runs a server on loopback with its own database and folder of artifacts."""
    try:
        program = environment() / "mlflow"
    except subprocess.CalledProcessError:
        lacking("MLflow cannot be installed: the package index does not answer")
    port = free_port()
    made = MlflowServer(f"http://127.0.0.1:{port}", folder)
    with (folder / "mlflow.log").open("wb") as log:
        process = subprocess.Popen(
            _command(program, folder, port),
            env=_environment(program, folder),
            cwd=folder,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            _wait(made, process)
            _use(made)
            yield made
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def _command(program: Path, folder: Path, port: int) -> list[str]:
    return [
        str(program), "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1",
        "--app-name", "basic-auth", "--backend-store-uri", f"sqlite:///{folder}/mlflow.db",
        "--artifacts-destination", str(folder / "artifacts"),
    ]  # fmt: skip


def _environment(program: Path, folder: Path) -> dict[str, str]:
    settings = folder / "auth.ini"
    settings.write_text(
        "[mlflow]\ndefault_permission = EDIT\n"
        f"database_uri = sqlite:///{folder}/auth.db\n"
        f"admin_username = {USER}\nadmin_password = {PASSWORD}\n"
        "authorization_function = mlflow.server.auth:authenticate_request_basic_auth\n"
    )
    return {
        "PATH": f"{program.parent}:/usr/bin:/bin",
        "HOME": str(folder),
        "MLFLOW_AUTH_CONFIG_PATH": str(settings),
        "MLFLOW_FLASK_SERVER_SECRET_KEY": "of-a-test-alone",
        # Eight more processes, for jobs that nobody starts here.
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "DO_NOT_TRACK": "true",
    }


def _wait(server: MlflowServer, process: "subprocess.Popen[bytes]") -> None:
    search = "/api/2.0/mlflow/experiments/search"

    def log() -> str:
        return (server.folder / "mlflow.log").read_text(errors="replace")[-3000:]

    def ready() -> bool:
        assert process.poll() is None, log()
        with contextlib.suppress(httpx.TransportError), server.http as http:
            return http.post(search, json={"max_results": 1}).status_code == 200
        return False

    try:
        wait_until(ready, "MLflow", START_SECONDS)
    except TimeoutError as error:
        raise AssertionError(f"{error}:\n{log()}") from error


def _use(server: MlflowServer) -> None:
    """Warms the server up, which takes a busy machine longer than a job waits."""
    now = int(time.time() * 1000)
    with server.http as http:
        http.timeout = httpx.Timeout(START_SECONDS)

        def post(path: str, **body: Any) -> Any:
            answer = http.post(f"/api/2.0/mlflow/{path}", json=body)
            answer.raise_for_status()
            return answer.json()

        experiment = post("experiments/create", name="first")["experiment_id"]
        run = post("runs/create", experiment_id=experiment, start_time=now)["run"]["info"]
        metric = {"key": "loss", "value": 1.0, "timestamp": now, "step": 1}
        post("runs/log-batch", run_id=run["run_id"], metrics=[metric])
        path = f"/api/2.0/mlflow-artifacts/artifacts/{experiment}/{run['run_id']}/artifacts/a.txt"
        http.put(path, content=b"a").raise_for_status()
        assert server.artifact(run["run_id"], "a.txt") == "a"
        post("runs/update", run_id=run["run_id"], status="FINISHED", end_time=now)
