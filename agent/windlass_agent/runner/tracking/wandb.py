"""Weights & Biases by the two calls that its own client makes of a run: GraphQL and file streams.

Its client brings 100 MB and a second process; what a job tells is a row a step. Both calls are as
wandb 0.31.0 was seen to make them. Files are not sent: W&B takes them at hosts of its stores, which
nobody has listed.
"""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from windlass_agent.runner.protocol.outcome import OutcomeKind
from windlass_agent.runner.tracking.endpoint import TrackerClient
from windlass_agent.runner.tracking.port import Point, TrackedRun, Unwilling

_UPSERT = """
mutation UpsertBucket(
  $name: String, $project: String, $entity: String, $displayName: String,
  $config: JSONString, $jobType: String, $tags: [String!]
) {
  upsertBucket(input: {
    name: $name, modelName: $project, entityName: $entity, displayName: $displayName,
    config: $config, jobType: $jobType, tags: $tags
  }) {
    bucket { id name historyLineCount project { name entity { name } } }
    inserted
  }
}
"""
_HISTORY = "wandb-history.jsonl"
_SUMMARY = "wandb-summary.json"
_OWN_API, _OWN_PAGES = "https://api.wandb.ai", "https://wandb.ai"
_TAG_LENGTH = 64


class WandbTracker:
    """A run that bears the job's id, so that a later attempt goes on with it."""

    title = "Weights & Biases"

    def __init__(self, endpoint: TrackerClient, url: str, config: Mapping[str, Any]) -> None:
        """`config` is the integration: project, and perhaps name, entity and tags."""
        self._endpoint = endpoint
        self._pages = _OWN_PAGES if url == _OWN_API else url
        self._config = config
        self._stream = ""
        # Lines that W&B has, the row of a step that may not be over, and the last of everything.
        self._sent = 0
        self._row: dict[str, Any] = {}
        self._summary: dict[str, Any] = {}
        self._began = time.time()

    async def begin(self, run: TrackedRun) -> str:
        """Makes the run, or goes on with the one of the job's id."""
        tags = ("windlass/finetune", f"windlass/{run.base_model}", f"windlass/{run.job_id}")
        config = {name: {"value": value} for name, value in run.params.items()}
        variables = {
            "name": run.job_id,
            "project": self._config["project"],
            "entity": self._config.get("entity"),
            "displayName": self._config.get("name") or run.job_id,
            "config": msgspec.json.encode(config).decode(),
            "jobType": "fine-tuning",
            "tags": [tag[:_TAG_LENGTH] for tag in (*self._config.get("tags", ()), *tags)],
        }
        document = {"query": _UPSERT, "variables": variables}
        answer = await self._endpoint.call("POST", "/graphql", document=document)
        if answer.get("errors") or not answer.get("data"):
            raise Unwilling("it refuses the run: check the project, the entity and the key")
        bucket = answer["data"]["upsertBucket"]["bucket"]
        project, entity = bucket["project"]["name"], bucket["project"]["entity"]["name"]
        owner = f"{quote(entity, safe='')}/{quote(project, safe='')}"
        self._stream = f"/files/{owner}/{quote(run.job_id)}/file_stream"
        self._sent = int(bucket.get("historyLineCount") or 0)
        self._summary = {"fine_tuned_model": run.model_name}
        return f"{self._pages}/{owner}/runs/{quote(run.job_id)}"

    async def log(self, points: Sequence[Point]) -> None:
        """Takes measurements; a step's row is sent when the next step begins."""
        done, row, summary = [], dict(self._row), dict(self._summary)
        for point in points:
            if row and row["_step"] != point.step:
                done.append(row)
                row = {}
            seconds = point.at_ms / 1000
            row |= {"_step": point.step, "_timestamp": seconds, **point.values}
            row["_runtime"] = max(0.0, seconds - self._began)
            summary |= row
        await self._tell(done, summary)
        self._row, self._summary = row, summary

    async def finish(self, verdict: OutcomeKind, files: Sequence[Path]) -> None:
        """Sends the last row and ends the run; of files W&B is told nothing."""
        await self._tell([self._row] if self._row else [], self._summary)
        self._row = {}
        failed = verdict is not OutcomeKind.SUCCEEDED
        end: dict[str, Any] = {"complete": True, "exitcode": int(failed)}
        if verdict is OutcomeKind.STOPPED:
            end["preempting"] = True
        await self._endpoint.call("POST", self._stream, document=end)

    async def _tell(self, rows: Sequence[Mapping[str, Any]], summary: Mapping[str, Any]) -> None:
        files = {_SUMMARY: {"offset": 0, "content": [msgspec.json.encode(summary).decode()]}}
        if rows:
            lines = [msgspec.json.encode(row).decode() for row in rows]
            files[_HISTORY] = {"offset": self._sent, "content": lines}
        await self._endpoint.call("POST", self._stream, document={"files": files})
        self._sent += len(rows)
