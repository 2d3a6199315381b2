"""The control plane's resources through the front door: wire, errors, operations."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openai
import pytest
from msgspec import to_builtins
from msgspec.structs import asdict
from tests.support.services.front import Front, running_front

from windlass.api.jobs.v1 import jobs_pb2 as pb
from windlass.api.jobs.v1 import jobs_pb2_grpc as rpc
from windlass.api.runner.v1 import runner_pb2
from windlass.core.errors import FailedPrecondition, NotFound
from windlass.core.rpc.auth import current
from windlass.jobs_api.request import CreateJob, decode

HYPERPARAMETERS: Any = {"n_epochs": 2, "batch_size": "auto", "learning_rate_multiplier": 0.5}


class JobsDesk(rpc.JobsServiceServicer):
    """Stands for the jobs service: remembers what the wire became, answers fixed jobs."""

    def __init__(self) -> None:
        self.created: list[pb.CreateJobRequest] = []
        self.checked: list[pb.CheckJobRequest] = []
        self.listed: list[pb.ListJobsRequest] = []
        self.job = pb.Job(
            id="ftjob-1",
            organization_id="org-1",
            model="toy",
            training_file="file-1",
            seed=7,
            method="supervised",
            hyperparameters=b'{"n_epochs":2,"batch_size":"auto"}',
            integrations=b"[]",
            metadata={"team": "red"},
            created_at=100,
            state=pb.JOB_STATE_PAUSED,
            attempt=2,
            generation=5,
            queue=pb.Queue(name="main", position=3, reason="no slot"),
            backend="trl",
            progress=pb.Progress(step=4, total_steps=10, tokens_per_second=1.5, phase="training"),
        )

    def _find(self, job_id: str) -> pb.Job:
        current().require_project()
        if job_id != self.job.id:
            raise NotFound(f"No job {job_id!r}.", param="fine_tuning_job_id")
        return self.job

    async def CreateJob(self, request: pb.CreateJobRequest, context: Any) -> pb.Job:
        self.created.append(request)
        return self.job

    async def CheckJob(self, request: pb.CheckJobRequest, context: Any) -> pb.Job:
        self.checked.append(request)
        return pb.Job(model="toy", method="supervised", state=pb.JOB_STATE_QUEUED)

    async def ListJobs(self, request: pb.ListJobsRequest, context: Any) -> pb.ListJobsResponse:
        self.listed.append(request)
        bare = pb.Job(id="ftjob-2", method="dpo", state=pb.JOB_STATE_RUNNING)
        return pb.ListJobsResponse(jobs=[self.job, bare])

    async def GetJob(self, request: pb.GetJobRequest, context: Any) -> pb.Job:
        return self._find(request.job_id)

    async def CancelJob(self, request: pb.CancelJobRequest, context: Any) -> pb.Job:
        return self._find(request.job_id)

    async def PauseJob(self, request: pb.PauseJobRequest, context: Any) -> pb.Job:
        raise FailedPrecondition("The job has ended.", reason="job_ended")

    async def ResumeJob(self, request: pb.ResumeJobRequest, context: Any) -> pb.Job:
        raise RuntimeError("a secret detail")

    async def ListEvents(self, request: pb.ListEventsRequest, context: Any) -> Any:
        return pb.ListEventsResponse(events=[_event(1)], has_more=False)

    async def WatchEvents(
        self, request: pb.WatchEventsRequest, context: Any
    ) -> AsyncIterator[pb.Event]:
        yield _event(1)
        if request.after == "break":
            raise FailedPrecondition("It broke.", reason="broken")
        yield _event(2)

    async def ListCheckpoints(self, request: pb.ListCheckpointsRequest, context: Any) -> Any:
        metrics = {"train_loss": 0.5, "learning_rate": 0.1}
        checkpoint = pb.Checkpoint(
            id="ftckpt_1",
            created_at=9,
            fine_tuned_model_checkpoint="ft:toy:org::x:ckpt-step-4",
            step_number=4,
            metrics=metrics,
        )
        return pb.ListCheckpointsResponse(checkpoints=[checkpoint])

    def _unasked(self, request: Any, context: Any) -> Any:
        raise NotImplementedError

    ExplainJob = ListRuntimes = _unasked

    async def ReadLog(self, request: pb.ReadLogRequest, context: Any) -> AsyncIterator[pb.LogChunk]:
        data = b"line one\nline two\n"
        yield pb.LogChunk(offset=request.offset, data=data[request.offset :])


def _event(number: int) -> pb.Event:
    return pb.Event(
        id=f"ftevent-{number}",
        created_at_ms=1500,
        level=runner_pb2.LEVEL_WARN,
        message="Step",
        type="metrics",
        data=b'{"step":1}',
    )


def hyperparameters_of(made: CreateJob) -> dict[str, Any]:
    assert made.given_hyperparameters is not None
    return asdict(made.given_hyperparameters)


@pytest.fixture
def desk() -> JobsDesk:
    return JobsDesk()


@pytest.fixture
async def front(database_url: str, tmp_path: Path, desk: JobsDesk) -> AsyncIterator[Front]:
    async with running_front(
        database_url,
        tmp_path / "data",
        ("users", "rbac", "files", "models", "clusters", "usage", "sessions", "tuning", "gateway"),
        instead={"jobs": (desk, rpc.add_JobsServiceServicer_to_server)},
    ) as front:
        yield front


async def test_every_field_of_a_job_reaches_the_service(front: Front, desk: JobsDesk) -> None:
    client: Any = front.openai()
    await client.fine_tuning.jobs.create(
        model="toy",
        training_file="file-1",
        validation_file="file-2",
        suffix="mine",
        seed=3,
        method={"type": "dpo", "dpo": {"hyperparameters": {**HYPERPARAMETERS, "beta": 0.2}}},
        metadata={"a": "b"},
        integrations=[{"type": "wandb", "wandb": {"project": "p", "tags": ["t"]}}],
        extra_body={"windlass": {"backend": "trl"}},
        extra_headers={"Idempotency-Key": "once"},
    )
    assert desk.created[0].request_id == "once"
    made = decode(desk.created[0].document)
    assert (made.model, made.training_file, made.validation_file) == ("toy", "file-1", "file-2")
    assert (made.suffix, made.seed, made.choose_method()) == ("mine", 3, "dpo")
    assert made.metadata == {"a": "b"}
    assert hyperparameters_of(made) == {**HYPERPARAMETERS, "beta": 0.2}
    assert to_builtins(made.integrations) == [
        {"type": "wandb", "wandb": {"project": "p", "tags": ["t"]}}
    ]
    assert made.windlass is not None
    assert made.windlass.backend == "trl"


async def test_a_grader_reaches_the_service_and_comes_back(front: Front, desk: JobsDesk) -> None:
    grader = {
        "type": "string_check",
        "name": "exact",
        "operation": "eq",
        "input": "{{sample.output_text}}",
        "reference": "{{item.answer}}",
    }
    hyperparameters = {"n_epochs": 1, "compute_multiplier": 1.5, "eval_samples": 4}
    desk.job.method, desk.job.grader = "rloo", json.dumps(grader).encode()
    reinforcement = {"grader": grader, "hyperparameters": hyperparameters}
    client: Any = front.openai()
    job = await client.fine_tuning.jobs.create(
        model="toy",
        training_file="file-1",
        method={"type": "reinforcement", "reinforcement": reinforcement},
        extra_body={"windlass": {"method": "rloo"}},
    )
    made = decode(desk.created[0].document)
    assert made.choose_method() == "rloo"
    assert json.loads(made.grader) == grader
    given = hyperparameters_of(made)
    assert {name: given[name] for name in hyperparameters} == hyperparameters
    assert (job.method.type, job.windlass["method"]) == ("reinforcement", "rloo")
    assert job.method.reinforcement.grader.to_dict() == grader


async def test_a_dry_run_creates_nothing(front: Front, desk: JobsDesk) -> None:
    path = "/v1/fine_tuning/jobs"
    async with front.http() as http:
        said = {"dry_run": "true", "training_format": "chat", "training_examples": "12"}
        answer = await http.post(path, params=said, json={"model": "toy"})
        assert (answer.status_code, answer.json()["id"]) == (200, "")
        for query, param in (
            ("dry_run=perhaps", "dry_run"),
            ("training_examples=12", "training_examples"),
            ("dryrun=true", "dryrun"),
            ("dry_run=true&dry_run=false", "dry_run"),
        ):
            body = {"model": "toy", "training_file": "file-1"}
            refused = await http.post(f"{path}?{query}", json=body)
            assert (refused.status_code, refused.json()["error"]["param"]) == (400, param)
        bare = await http.post(path, params={"dry_run": "false"}, json={"model": "toy"})
        assert bare.json()["error"]["param"] == "training_file"
    (asked,) = desk.checked
    assert (asked.document, asked.training_format, asked.training_examples) == (
        b'{"model":"toy"}', "chat", 12,
    )  # fmt: skip
    assert not desk.created


async def test_the_old_way_to_give_hyperparameters(front: Front, desk: JobsDesk) -> None:
    client = front.openai()
    await client.fine_tuning.jobs.create(
        model="toy", training_file="file-1", hyperparameters=HYPERPARAMETERS
    )
    made = decode(desk.created[0].document)
    assert made.method is None
    assert hyperparameters_of(made) == HYPERPARAMETERS
    assert made.seed is None


async def test_a_bad_job_names_the_field(front: Front) -> None:
    bodies: tuple[tuple[Any, str | None], ...] = (
        ({"training_file": "f"}, "model"),
        ({"model": "m", "training_file": "f", "seed": -1}, "seed"),
        ({"model": "m", "training_file": "f", "seed": 2**70}, "seed"),
        ({"model": "m", "training_file": "f", "suffix": "x" * 65}, "suffix"),
        ({"model": "m", "training_file": "f", "unknown": 1}, "unknown"),
        ({"model": "m", "training_file": "f", "method": {"type": "magic"}}, "method.type"),
        ({"model": "m", "training_file": "f", "metadata": {"k": "v" * 513}}, "metadata.k"),
        (
            {"model": "m", "training_file": "f", "method": {"type": "dpo", "supervised": {}}},
            "method",
        ),
        ([], None),
    )
    async with front.http() as http:
        for body, param in bodies:
            answer = await http.post("/v1/fine_tuning/jobs", json=body)
            assert answer.status_code == 400, body
            assert answer.json()["error"]["param"] == param, body
            assert answer.json()["error"]["type"] == "invalid_request_error", body


async def test_a_job_is_openais_and_says_more(front: Front) -> None:
    job = await front.openai().fine_tuning.jobs.retrieve("ftjob-1")
    assert (job.object, job.status, job.seed) == ("fine_tuning.job", "queued", 7)
    assert job.hyperparameters.batch_size == "auto"
    assert job.method is not None
    assert job.method.supervised is not None
    assert job.metadata == {"team": "red"}
    unset = (job.finished_at, job.error, job.fine_tuned_model, job.trained_tokens)
    assert unset == (None,) * 4
    extra: Any = job.model_extra
    assert extra["windlass"]["state"] == "paused"
    assert extra["windlass"]["queue"] == {"name": "main", "position": 3, "reason": "no slot"}
    assert extra["windlass"]["progress"]["step"] == 4


async def test_lists_filter_by_metadata(front: Front, desk: JobsDesk) -> None:
    client = front.openai()
    await client.fine_tuning.jobs.list(metadata={"team": "red", "x y": "ä"}, limit=5)
    assert dict(desk.listed[0].metadata) == {"team": "red", "x y": "ä"}
    assert desk.listed[0].limit == 5
    async with front.http() as http:
        bare = (await http.get("/v1/fine_tuning/jobs?metadata=null")).json()
    assert [job["id"] for job in bare["data"]] == ["ftjob-2"]


async def test_events_checkpoints_and_logs(front: Front) -> None:
    jobs = front.openai().fine_tuning.jobs
    event = (await jobs.list_events("ftjob-1")).data[0]
    assert (event.level, event.type, event.data, event.created_at) == (
        "warn",
        "metrics",
        {"step": 1},
        1,
    )
    checkpoint = (await jobs.checkpoints.list("ftjob-1")).data[0]
    assert checkpoint.fine_tuning_job_id == "ftjob-1"
    assert (checkpoint.metrics.train_loss, checkpoint.metrics.step) == (0.5, 4)
    async with front.http() as http:
        path = "/v1/fine_tuning/jobs/ftjob-1"
        stream = (await http.get(f"{path}/events?stream=true")).text
        assert stream.count("data: {") == 2
        assert stream.endswith("data: [DONE]\n\n")
        broken = (await http.get(f"{path}/events?stream=true&after=break")).text
        assert '"code":"broken"' in broken
        assert "[DONE]" not in broken
        log = await http.get(f"{path}/logs?offset=5&follow=true")
        assert log.text == "one\nline two\n"
        assert (await http.get("/v1/fine_tuning/jobs/nope/logs")).status_code == 404


async def test_errors_keep_status_reason_and_param(front: Front) -> None:
    jobs = front.openai().fine_tuning.jobs
    with pytest.raises(openai.NotFoundError) as missing:
        await jobs.retrieve("nope")
    assert missing.value.code == "not_found"
    assert missing.value.param == "fine_tuning_job_id"
    with pytest.raises(openai.ConflictError) as conflict:
        await jobs.pause("ftjob-1")
    assert conflict.value.response.headers["x-should-retry"] == "false"
    assert conflict.value.code == "job_ended"
    # Nobody expected it: its words are for the log alone.
    with pytest.raises(openai.InternalServerError) as broken:
        await jobs.resume("ftjob-1")
    assert broken.value.status_code == 500
    assert str(broken.value.response.headers["x-request-id"]) in str(broken.value)
    assert "secret" not in str(broken.value)


async def test_paths_methods_and_bodies_that_are_wrong(front: Front) -> None:
    async with front.http() as http:
        unknown = await http.get("/v1/teapots")
        assert unknown.status_code == 404
        assert unknown.json()["error"]["code"] == "unknown_url"
        method = await http.patch("/v1/fine_tuning/jobs/x")
        assert (method.status_code, method.headers["allow"]) == (405, "GET")
        assert (await http.get("/v1/chat/completions")).headers["allow"] == "POST"
        assert (await http.get("/v1/fine_tuning/jobs/%00")).status_code == 400
        nul = await http.post("/v1/projects", json={"title": "a\0b"})
        assert nul.status_code == 400
        large = await http.post("/v1/projects", content=b"x" * (9 * 2**20))
        assert large.status_code == 413
        broken = await http.post(
            "/v1/projects", content=b"{", headers={"content-type": "application/json"}
        )
        assert broken.status_code == 400
        assert "parse" in broken.json()["error"]["message"]


async def test_a_request_id_comes_back(front: Front) -> None:
    async with front.http() as http:
        answer = await http.get("/v1/me", headers={"x-request-id": "mine-1"})
        assert answer.headers["x-request-id"] == "mine-1"
        assert answer.headers["openai-version"]
        assert answer.headers["openai-organization"]
        evil = await http.get("/v1/me", headers={"x-request-id": "a b"})
        assert evil.headers["x-request-id"].startswith("req_")


async def test_the_description_of_the_api(front: Front) -> None:
    async with front.http() as http:
        docs = await http.get("/docs")
        assert "http" not in docs.text.replace("http-equiv", "")
        assert "default-src 'none'" in docs.headers["content-security-policy"]
        schema = (await http.get("/openapi.json")).json()
    paths = schema["paths"]
    assert "post" in paths["/v1/files"]
    assert "post" in paths["/v1/chat/completions"]
    assert "get" in paths["/v1/fine_tuning/jobs/{job_id}/events"]
    assert "422" not in paths["/v1/projects"]["post"]["responses"]


async def test_tenants_keys_secrets_and_clusters(front: Front) -> None:
    async with front.http() as http:
        me = (await http.get("/v1/me")).json()
        assert me["principal"]["roles"] == ["platform_admin"]
        made = (await http.post("/v1/organizations", json={"title": "acme"})).json()
        assert made["object"] == "organization"
        listed = (await http.get("/v1/organizations")).json()
        assert {one["title"] for one in listed["data"]} >= {"acme"}
        project = (await http.post("/v1/projects", json={"title": "two"})).json()
        assert project["status"] == "active"
        assert project["archived_at"] is None
        member = {"user_id": "bob", "role": "project_member", "project_id": project["id"]}
        assert (await http.put("/v1/members", json=member)).json()["id"] == "bob"
        members = await http.get("/v1/members", params={"project_id": project["id"]})
        roles = {one["id"]: one["role"] for one in members.json()["data"]}
        assert roles == {"bob": "project_member", "owner": "project_owner"}
        gone = await http.delete("/v1/members/bob", params={"project_id": project["id"]})
        assert gone.json()["deleted"]
        archived = await http.post(f"/v1/projects/{project['id']}/archive")
        assert archived.json()["status"] == "archived"
        role = await http.post("/v1/api_keys", json={"name": "x", "role": "king"})
        assert role.json()["error"]["param"] == "role"
        put = await http.put("/v1/secrets/wandb", json={"value": "s3cret"})
        assert "s3cret" not in put.text
        secrets = (await http.get("/v1/secrets")).json()
        assert [one["name"] for one in secrets["data"]] == ["wandb"]
        assert (await http.delete("/v1/secrets/wandb")).json()["deleted"]
        cluster = (await http.post("/v1/clusters", json={"name": "east"})).json()
        assert cluster["registration_key"]
        got = (await http.get(f"/v1/clusters/{cluster['id']}")).json()
        assert (got["name"], got["live"]) == ("east", False)
        assert (await http.delete(f"/v1/clusters/{cluster['id']}")).json()["deleted"]


async def test_models_have_names_with_colons_and_slashes(front: Front) -> None:
    client = front.openai()
    for name in ("ft:toy:acme:x:y", "meta/llama-3", "imports"):
        with pytest.raises(openai.NotFoundError) as caught:
            await client.models.retrieve(name)
        assert name in caught.value.message
    async with front.http() as http:
        digest = "zz" * 32
        bad = {"id": "m", "files": [{"path": "config.json", "bytes": 1, "sha256": digest}]}
        answer = await http.post("/v1/models/imports", json=bad)
        assert answer.json()["error"]["param"] == "files.0.sha256"
