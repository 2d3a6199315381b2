"""An organization with something in every service, for tests of what leaves and of exports."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import psycopg
from tests.support.processes.front_door import GOOD, jsonl
from tests.support.services.front import Front


class Tenant:
    """An organization with something in every service, all of whose names have the mark."""

    def __init__(self, front: Front, organization: str, project: str, http: httpx.AsyncClient):
        self.front, self.id, self.project, self.http = front, organization, project, http
        self.secret = ""

    @classmethod
    async def made(cls, front: Front, mark: str) -> "Tenant":
        async with front.http() as http:
            made = await ok(http.post("/v1/organizations", json={"title": f"{mark} Ltd"}))
        http = front.http(**{"OpenAI-Organization": made["id"]})
        project = await ok(http.post("/v1/projects", json={"title": f"{mark} research"}))
        body = {"name": f"{mark} key", "project_id": project["id"], "role": "project_owner"}
        key = await ok(http.post("/v1/api_keys", json=body))
        tenant = cls(front, made["id"], project["id"], http)
        async with front.http(key["value"]) as own:
            tenant.secret = key["value"]
            await tenant._fill(own, mark)
        return tenant

    async def _fill(self, own: httpx.AsyncClient, mark: str) -> None:
        rows = {"file": (f"{mark}.jsonl", jsonl([GOOD] * 20))}
        await ok(own.post("/v1/files", data={"purpose": "fine-tune"}, files=rows))
        await ok(own.put(f"/v1/secrets/{mark}_wandb", json={"value": f"{mark}-secret"}))
        told = {"url": f"https://{mark}.example.com/hook"}
        await ok(own.post("/v1/webhook_endpoints", json=told))
        role = {"role_name": f"{mark} keeper", "permissions": ["files.read"]}
        await ok(self.http.post(f"/v1/projects/{self.project}/roles", json=role))
        await ok(self.http.post("/v1/organization/groups", json={"name": f"{mark} team"}))
        invite = {"role": "reader", "email": f"ann@{mark}.example"}
        await ok(self.http.post("/v1/organization/invites", json=invite))
        objects = self.front.app.objects
        for key in (
            f"models/mv-{mark}/config.json",
            f"artifacts/{self.project}/j/1/model-1/a.bin",
            f"logs/ftjob-{self.id}/1/000000000000-a",
            f"tuning/{self.project}/checkpoints/ckpt-{mark}/adapter.bin",
        ):
            await objects.put(key, _chunks(mark.encode()))
        run(self.front, _ROWS, org=self.id, proj=self.project, mark=mark)

    async def close(self) -> None:
        await self.http.aclose()


# As if work had been done: what engines and trainers would leave.
_ROWS = """
INSERT INTO models_versions (id, organization_id, project_id, name, kind, manifest, digest,
  object_prefix, bytes, state, created_at) VALUES ('mv-' || %(mark)s, %(org)s, %(proj)s,
  %(mark)s, 'base', '[]', '', 'models/mv-' || %(mark)s || '/', 7, 'ready', 1);
INSERT INTO models_models (project_id, name, version_id, revision)
  SELECT %(proj)s, %(mark)s, 'mv-' || %(mark)s, 1000 + count(*) FROM models_models;
INSERT INTO jobs_jobs (id, organization_id, project_id, spec, state, model_name, created_at_ms)
  VALUES ('ftjob-' || %(org)s, %(org)s, %(proj)s, '{}', 9, %(mark)s, 1);
INSERT INTO jobs_events (job_id, revision, at_ms, level, message)
  VALUES ('ftjob-' || %(org)s, 1, 1, 1, %(mark)s);
INSERT INTO usage_records (id, at_ms, organization_id, project_id, user_id, key_id, model, kind,
  input_tokens, output_tokens, duration_ms, time_to_first_token_ms, status)
  VALUES ('use-' || %(org)s, 1, %(org)s, %(proj)s, 'u', 'k', %(mark)s, 1, 5, 6, 1, 1, 200);
INSERT INTO inference_servings (project_id, model, organization_id, version_id,
  engine_version_id, min_replicas, updated_at)
  VALUES (%(proj)s, %(mark)s, %(org)s, 'mv-' || %(mark)s, 'mv-' || %(mark)s, 0, 1);
INSERT INTO tuning_sessions (id, organization_id, project_id, user_id, tags, user_metadata,
  sdk_version, display_name, created_at, heartbeat_at) VALUES ('session-' || %(mark)s, %(org)s,
  %(proj)s, 'u', '[]', '{}', '', %(mark)s, 1, 4102444800);
INSERT INTO tuning_runs (id, organization_id, project_id, user_id, session_id, base_model, settings,
  user_metadata, created_at, last_request_at) VALUES ('session-' || %(mark)s || ':train:0', %(org)s,
  %(proj)s, 'u', 'session-' || %(mark)s, 'toy', '{}', '{}', 1, 1);
INSERT INTO tuning_operations (id, organization_id, project_id, run_id, sampler_id, seq_id, digest,
  state, finished_at, created_at) VALUES ('op-' || %(mark)s, %(org)s, %(proj)s,
  'session-' || %(mark)s || ':train:0', '', 1, '', 'done', 4102444800, 1);
INSERT INTO tuning_checkpoints (id, organization_id, project_id, run_id, base_model, settings, name,
  is_for_sampler, user_metadata, state, created_at) VALUES ('ckpt-' || %(mark)s, %(org)s, %(proj)s,
  'session-' || %(mark)s || ':train:0', 'toy', '{}', %(mark)s, false, '{}', 'ready', 1);
INSERT INTO tuning_samplers (id, organization_id, project_id, session_id, base_model, checkpoint_id,
  run_id, path, created_at) VALUES ('session-' || %(mark)s || ':sample:0', %(org)s, %(proj)s,
  'session-' || %(mark)s, 'toy', '', '', '', 1);
INSERT INTO tuning_losses (id, organization_id, project_id, user_id, session_id, name, document,
  created_at) VALUES ('loss-' || %(mark)s, %(org)s, %(proj)s, 'u', 'session-' || %(mark)s,
  %(mark)s, '{}', 1);
INSERT INTO tuning_loans (digest, organization_id, project_id, checkpoint_id, expires_at)
  VALUES (sha256(%(mark)s::bytea), %(org)s, %(proj)s, 'ckpt-' || %(mark)s, 4102444800);
INSERT INTO users_people (organization_id, user_id, email, name, created_at, updated_at)
  VALUES (%(org)s, 'user-1', 'ann@' || %(mark)s, %(mark)s, 1, 1);
"""


async def ok(answer: Any) -> Any:
    found = await answer
    assert found.is_success, found.text
    return found.json()


async def _chunks(content: bytes) -> AsyncIterator[bytes]:
    yield content


def run(front: Front, statement: str, **values: str) -> list[Any]:
    url = front.app.database.url.replace("+psycopg", "")
    with psycopg.ClientCursor(psycopg.connect(url, autocommit=True)) as cursor:
        cursor.execute(statement.encode(), values or None)
        return cursor.fetchall() if cursor.description else []
