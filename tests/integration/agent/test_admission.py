"""Admission requests of the API server, and the responses."""

import base64
import copy
import json
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from windlass_agent.admission.review import MalformedReview, Request, mutation
from windlass_agent.admission.server import AdmissionWebhook
from windlass_agent.frameworks import TrainingRuntime
from windlass_agent.kube import Access, Kube

RUNTIME = {
    "metadata": {"name": "r-llama3.2-1b", "labels": {"trainer.kubeflow.org/framework": "trl"}},
    "spec": {"mlPolicy": {"torch": {}}},
}


def review(
    trainer: Any = None, before: Any = None, *, operation: str = "CREATE", **spec: Any
) -> dict[str, Any]:
    def job(fields: Any) -> dict[str, Any]:
        reference = {"kind": "ClusterTrainingRuntime", "name": "r-llama3.2-1b"}
        made = {"runtimeRef": reference} | ({} if fields is None else {"trainer": fields})
        return {"metadata": {"name": "j"}, "spec": made}

    after = job(trainer)
    after["spec"] |= spec
    request = {"uid": "u", "namespace": "team", "operation": operation, "object": after}
    return {"request": request | ({"oldObject": job(before)} if operation == "UPDATE" else {})}


@pytest.mark.parametrize(
    "broken", [None, [], {}, {"request": {}}, review(operation="DELETE"), {"request": {"uid": "u"}}]
)
def test_what_is_no_question_is_refused(broken: Any) -> None:
    with pytest.raises(MalformedReview):
        Request.of(broken)


def test_of_a_type_that_the_schema_refuses_nothing_is_said() -> None:
    runtime = TrainingRuntime(name="r", framework="trl")
    for trainer in ("text", {"command": [1]}, {"args": [None]}, {"args": "letters"}):
        assert mutation(Request.of(review(trainer)), runtime) == []


def test_an_update_is_completed_to_what_stands_and_to_nothing_else() -> None:
    runtime = TrainingRuntime.of(RUNTIME)
    sent = {"command": ["trl", "sft"]}
    stands = {"command": ["torchrun", "-m", "trl.scripts.sft"]}
    (patch,) = mutation(Request.of(review(sent, stands, operation="UPDATE")), runtime)
    assert patch == {"op": "add", "path": "/spec/trainer", "value": stands}
    other = {"command": ["torchrun", "-m", "trl.scripts.dpo"]}
    assert mutation(Request.of(review(sent, other, operation="UPDATE")), runtime) == []


def test_the_runtime_is_asked_for_only_when_it_matters() -> None:
    assert Request.of(review({}, {}, operation="UPDATE")).runtime is None
    resumed = Request.of(review({}, {}, operation="UPDATE", suspend=False)).runtime
    assert resumed is not None
    assert resumed[0].kind == "ClusterTrainingRuntime"
    ending = copy.deepcopy(review({}))
    ending["request"]["object"]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert Request.of(ending).runtime is None
    foreign = copy.deepcopy(review({}))
    foreign["request"]["object"]["spec"]["runtimeRef"]["kind"] = "Else"
    assert Request.of(foreign).runtime is None


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
@pytest.mark.parametrize(
    ("reference", "field"),
    [
        ({"name": 7}, "spec.runtimeRef.name"),
        ({"name": ["a"]}, "spec.runtimeRef.name"),
        ({"name": "r", "kind": {"a": 1}}, "spec.runtimeRef.kind"),
        ("trl", "spec.runtimeRef"),
    ],
)
def test_a_reference_that_is_no_text_is_named(operation: str, reference: Any, field: str) -> None:
    asked = review({}, {}, operation=operation, runtimeRef=reference)
    (found,) = Request.of(asked).faults()
    assert found.field == field
    asked["request"]["object"]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert list(Request.of(asked).faults()) == []


def test_nobody_says_that_a_trainjob_is_windlass() -> None:
    """The webhook is not asked about what an agent makes, and not about what it made."""
    labels = {"labels": {"windlass.dev/kind": "job"}}
    made = review({})
    made["request"]["object"]["metadata"] |= labels
    (found,) = Request.of(made).faults()
    assert found.field == "metadata.labels[windlass.dev/kind]"
    assert "admission.agents" in found.message
    changed = review({}, {}, operation="UPDATE")
    changed["request"]["object"]["metadata"] |= labels
    assert [one.field for one in Request.of(changed).faults()] == [found.field]
    changed["request"]["oldObject"]["metadata"] |= labels
    assert list(Request.of(changed).faults()) == []
    for harmless in (None, "text", {"windlass.dev/kind": "guest"}, {"other": 1}):
        made["request"]["object"]["metadata"]["labels"] = harmless
        assert list(Request.of(made).faults()) == []


class Api:
    """The API server's part: one runtime, or an answer that is none."""

    def __init__(self) -> None:
        self.status = 200
        self.asked: list[str] = []

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.append(request.path)
        kind = {"kind": "Status", "reason": "x", "message": "no", "code": self.status}
        return web.json_response(RUNTIME if self.status == 200 else kind, status=self.status)


async def test_it_answers_over_http() -> None:
    api = Api()
    app = web.Application()
    app.router.add_get("/{path:.*}", api.answer)

    async def nobody() -> str:
        return ""

    async with TestServer(app) as server:
        kube = Kube(Access(str(server.make_url("/")).rstrip("/"), None, nobody))
        async with kube, TestClient(TestServer(AdmissionWebhook(kube).app())) as client:

            async def ask(path: str, body: Any) -> tuple[int, Any]:
                async with client.post(path, json=body) as answer:
                    return answer.status, await answer.json()

            status, said = await ask("/mutate", review({"command": ["trl", "sft"]}))
            assert status == 200
            assert said["response"]["uid"] == "u"
            (patch,) = json.loads(base64.b64decode(said["response"]["patch"]))
            assert patch["value"]["command"] == ["torchrun", "-m", "trl.scripts.sft"]
            assert api.asked[-1].endswith("/clustertrainingruntimes/r-llama3.2-1b")
            _, said = await ask("/validate", review({"command": ["trl", "ppo"]}))
            assert said["response"]["allowed"] is False
            assert said["response"]["status"]["code"] == 422
            assert "spec.trainer.command: TRL has no PPO" in said["response"]["status"]["message"]
            for path in ("/mutate", "/validate"):
                status, said = await ask(path, review({}, runtimeRef={"name": 7}))
                assert status == 200
                assert said["response"]["allowed"] is False
                assert (
                    "spec.runtimeRef.name: must be a string"
                    in said["response"]["status"]["message"]
                )
            # What is missing, Trainer says; what nobody knows, the webhook's policy decides.
            api.status = 404
            assert (await ask("/validate", review({})))[1]["response"]["allowed"] is True
            api.status = 503
            assert (await ask("/validate", review({})))[0] == 503
            assert (await ask("/mutate", {"request": 1}))[0] == 400
            assert (await client.get("/healthz")).status == 200
