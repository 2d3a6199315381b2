"""MLflow by its REST API, which needs no client: a run per job, over all of its attempts."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from windlass_agent.clock import now_ms
from windlass_agent.runner.protocol.outcome import OutcomeKind
from windlass_agent.runner.tracking.endpoint import TrackerClient
from windlass_agent.runner.tracking.port import Point, TrackedRun, Unwilling

_API = "/api/2.0/mlflow"
_JOB_TAG = "windlass.job_id"
# MLflow's own bounds on one call.
_PARAMS = 100
_METRICS = 1000
_PROXIED = "mlflow-artifacts:"
_FILE_BYTES = 16 << 20
_STATUS = {
    OutcomeKind.SUCCEEDED: "FINISHED",
    OutcomeKind.FAILED: "FAILED",
    OutcomeKind.STOPPED: "KILLED",
}


class MlflowTracker:
    """A run in an experiment, which is made where it is not there."""

    title = "MLflow"

    def __init__(self, endpoint: TrackerClient, url: str, config: Mapping[str, Any]) -> None:
        """`config` is the integration: experiment, and perhaps name and tags."""
        self._endpoint = endpoint
        self._url = url
        self._config = config
        self._run_id = ""
        self._artifacts = ""

    async def begin(self, run: TrackedRun) -> str:
        """Makes the run, or goes on with the one that bears the job's id."""
        experiment = await self._experiment(self._config["experiment"])
        found = await self._find(experiment, run.job_id)
        info = found or await self._create(experiment, run)
        self._run_id, self._artifacts = info["run_id"], info.get("artifact_uri", "")
        if found:
            await self._post("runs/update", {"run_id": self._run_id, "status": "RUNNING"})
        else:
            params = [{"key": key, "value": value} for key, value in run.params.items()]
            await self._post("runs/log-batch", {"run_id": self._run_id, "params": params[:_PARAMS]})
        return f"{self._url}/#/experiments/{quote(experiment)}/runs/{quote(self._run_id)}"

    async def log(self, points: Sequence[Point]) -> None:
        """Takes measurements; a repeat of one is the same one to MLflow."""
        metrics = [
            {"key": name, "value": value, "timestamp": point.at_ms, "step": point.step}
            for point in points
            for name, value in point.values.items()
        ]
        for first in range(0, len(metrics), _METRICS):
            batch = {"run_id": self._run_id, "metrics": metrics[first : first + _METRICS]}
            await self._post("runs/log-batch", batch)

    async def finish(self, verdict: OutcomeKind, files: Sequence[Path]) -> None:
        """Stores files where the server keeps artifacts for its clients, and ends the run."""
        if self._artifacts.startswith(_PROXIED):
            for file in files:
                await self._store(file)
        ended = {"status": _STATUS[verdict], "end_time": now_ms()}
        await self._post("runs/update", {"run_id": self._run_id, **ended})

    async def _experiment(self, name: str) -> str:
        if found := await self._named(name):
            return found
        try:
            made = await self._post("experiments/create", {"name": name})
        except Unwilling as error:
            # Another job made it meanwhile.
            if error.code != "RESOURCE_ALREADY_EXISTS" or not (found := await self._named(name)):
                raise
            return found
        return str(made["experiment_id"])

    async def _named(self, name: str) -> str:
        path = f"{_API}/experiments/get-by-name"
        try:
            answer = await self._endpoint.call("GET", path, query={"experiment_name": name})
        except Unwilling as error:
            if error.code != "RESOURCE_DOES_NOT_EXIST":
                raise
            return ""
        return str(answer["experiment"]["experiment_id"])

    async def _find(self, experiment: str, job_id: str) -> dict[str, Any] | None:
        search = {
            "experiment_ids": [experiment],
            "filter": f"tags.`{_JOB_TAG}` = '{job_id}'",
            "max_results": 1,
        }
        runs = (await self._post("runs/search", search)).get("runs") or [None]
        return runs[0]["info"] if runs[0] else None

    async def _create(self, experiment: str, run: TrackedRun) -> dict[str, Any]:
        name = self._config.get("name") or run.job_id
        tags = {
            **self._config.get("tags", {}),
            _JOB_TAG: run.job_id,
            "windlass.base_model": run.base_model,
            "windlass.fine_tuned_model": run.model_name,
            "mlflow.runName": name,
        }
        request = {
            "experiment_id": experiment,
            "run_name": name,
            "start_time": now_ms(),
            "tags": [{"key": key, "value": value} for key, value in tags.items()],
        }
        made: dict[str, Any] = (await self._post("runs/create", request))["run"]["info"]
        return made

    async def _store(self, file: Path) -> None:
        if file.stat().st_size > _FILE_BYTES:
            return
        folder = self._artifacts.removeprefix(_PROXIED).lstrip("/")
        path = quote(f"{folder}/{file.name}")
        await self._endpoint.call(
            "PUT", f"/api/2.0/mlflow-artifacts/artifacts/{path}", content=file.read_bytes()
        )

    async def _post(self, path: str, document: Any) -> Any:
        return await self._endpoint.call("POST", f"{_API}/{path}", document=document) or {}
