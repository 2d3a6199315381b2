"""Jobs behind the front door: callers with keys, and an agent that a test scripts."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import httpx
from tests.support.factories.feather import FEATHER
from tests.support.processes.front_door import promise
from tests.support.services.front import Front, running_front
from tests.support.services.jobs_plane import CHAT, JobsPlane, ScriptedAgent

from windlass.core.app import runtime_dir


@dataclass
class FrontJobs:
    """A running front door with jobs behind it; the base model is `tiny`."""

    front: Front
    plane: JobsPlane
    agent: ScriptedAgent

    async def project(self, title: str) -> str:
        """Creates a project in the owner's organization."""
        return str((await self._post("/v1/projects", {"title": title}))["id"])

    async def key(self, project_id: str, role: str = "project_member") -> str:
        """Creates a key of a project."""
        body = {"name": role, "role": role, "project_id": project_id}
        return str((await self._post("/v1/api_keys", body))["value"])

    async def strange_key(self) -> str:
        """Returns a key of the owner of another organization's project."""
        owner = await self.strange_owner()
        async with self.front.http(owner) as http:
            project = (await http.post("/v1/projects", json={"title": "theirs"})).json()["id"]
            body = {"name": "x", "role": "project_owner", "project_id": project}
            return str((await http.post("/v1/api_keys", json=body)).json()["value"])

    async def strange_owner(self) -> str:
        """Returns a key of the owner of another organization."""
        organization = (await self._post("/v1/organizations", {"title": "Other"}))["id"]
        headers = {"OpenAI-Organization": organization}
        async with self.front.http(**headers) as http:
            body = {"name": "owner", "role": "organization_owner"}
            return str((await http.post("/v1/api_keys", json=body)).json()["value"])

    async def project_of(self, key: str) -> str:
        """Returns the project of a key."""
        async with self.front.http(key) as http:
            return str((await http.get("/v1/me")).json()["principal"]["project_id"])

    async def _post(self, path: str, body: Any) -> Any:
        async with self.front.http() as http:
            answer = await http.post(path, json=body)
            assert answer.is_success, answer.text
            return answer.json()

    async def create(self, key: str, **fields: Any) -> str:
        """Creates a job and returns its id."""
        content = (json.dumps(CHAT) + "\n").encode() * 20
        async with self.front.openai(key) as client:
            file = await client.files.create(file=("x.jsonl", content), purpose="fine-tune")
            job = await client.fine_tuning.jobs.create(
                model="tiny", training_file=file.id, **fields
            )
        return str(job.id)

    def http(self, key: str, **headers: str) -> httpx.AsyncClient:
        """Raw HTTP with a key."""
        return self.front.http(key, **headers)


@asynccontextmanager
async def running_front_jobs(
    database_url: str, data: Path, **sections: Any
) -> AsyncIterator[FrontJobs]:
    """Serves until the end of the block; `sections` are of the settings."""
    async with running_front(database_url, data, **sections) as front:
        socket = runtime_dir(data) / "front.sock"
        async with grpc.aio.insecure_channel(f"unix://{socket}") as channel:
            plane = JobsPlane(front.app, front.app.tokens, channel)
            await import_model(front, "tiny", everyones=True)
            agent = await plane.agent()
            try:
                yield FrontJobs(front, plane, agent)
            finally:
                await agent.close()


async def import_model(
    front: Front, name: str, *, key: str | None = None, everyones: bool = False
) -> None:
    """Uploads a model that nothing could load, for the project of the key or for all."""
    async with front.http(key) as http:
        body = {"id": name, "files": promise(FEATHER), "global": everyones}
        started = (await http.post("/v1/models/imports", json=body)).json()
        for upload in started["uploads"]:
            answer = await http.put(upload["url"], content=FEATHER[upload["path"]])
            assert answer.is_success, answer.text
        done = await http.post(f"/v1/models/imports/{started['import_id']}/complete")
        assert done.is_success, done.text
