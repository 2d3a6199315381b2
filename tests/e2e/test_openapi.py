"""/openapi.json is true: whatever it allows is answered as it says, and never with a 500."""

from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from openapi_spec_validator import validate
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from tests.support.clients.refusals import refusal
from tests.support.factories.tenants import Tenants

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]


@pytest.fixture(scope="module")
def document(tenants: Tenants) -> dict[str, Any]:
    with tenants.admin.http() as http:
        found: dict[str, Any] = http.get("/openapi.json").json()
    return found


@pytest.fixture(scope="module")
def described(document: dict[str, Any]) -> Any:
    return schemathesis.openapi.from_dict(document)


@pytest.mark.parametrize("examples", [2, pytest.param(50, marks=pytest.mark.long)])
def test_every_operation_answers_as_it_says(
    described: Any, tenants: Tenants, examples: int
) -> None:
    """So many requests for each operation."""
    with tenants.admin.http() as http:
        for operation in described.get_all_operations():
            _try(operation.ok(), http, examples)


def _try(operation: Any, http: httpx.Client, examples: int) -> None:
    @settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy())
    def answers(case: Any) -> None:
        case.call_and_validate(
            base_url=str(http.base_url), headers=dict(http.headers), checks=CHECKS
        )

    answers()


def test_the_document_is_one(document: dict[str, Any]) -> None:
    validate(document)


def test_every_operation_says_what_it_answers(document: dict[str, Any]) -> None:
    for path, item in document["paths"].items():
        for method, operation in item.items():
            answer = operation["responses"]["200"]["content"]
            assert answer, f"{method} {path}"
            assert all(content.get("schema") for content in answer.values()), f"{method} {path}"
            assert operation["responses"]["default"], f"{method} {path}"


def test_pages_say_their_bounds(document: dict[str, Any], tenants: Tenants) -> None:
    """One more than the greatest limit is refused, and the greatest is not."""
    with tenants.admin.http() as http:
        for path, item in document["paths"].items():
            parameters = {one["name"]: one for one in item.get("get", {}).get("parameters", ())}
            if "limit" not in parameters or "{" in path or "start_time" in parameters:
                continue
            most = parameters["limit"]["schema"]["maximum"]
            assert http.get(path, params={"limit": most}).status_code == 200, path
            assert http.get(path, params={"limit": most + 1}).status_code == 400, path


def test_an_unknown_parameter_of_the_query_is_named(tenants: Tenants) -> None:
    with tenants.admin.http() as http:
        for path in ("/v1/files", "/v1/fine_tuning/jobs", "/v1/me", "/v1/usage?start_time=1"):
            said = refusal(http.get(path, params={"start_time": 1, "limits": 3}), 400)
            assert said.code == "unknown_parameter"
        assert http.get("/v1/fine_tuning/jobs", params={"metadata[a]": "b"}).status_code == 200
        answer = http.get("/v1/usage", params={"start_time": 1, "group_by[]": "model"})
        assert answer.status_code == 200


def test_true_is_no_number(tenants: Tenants) -> None:
    with tenants.admin.http() as http:
        for wrong in (True, False, "5", 1.5):
            body = {"name": "x", "expires_in": wrong}
            said = refusal(http.post("/v1/api_keys", json=body), 400)
            assert said.param == "expires_in"


def test_a_refused_method_names_the_others(tenants: Tenants) -> None:
    with tenants.admin.http() as http:
        for path, methods in (
            ("/v1/files", "GET, POST"), ("/v1/projects", "GET, POST"), ("/v1/me", "GET"),
            ("/v1/members", "GET, PUT"), ("/v1/chat/completions", "POST"),
        ):  # fmt: skip
            answer = http.patch(path)
            assert (answer.status_code, answer.headers["allow"]) == (405, methods), path


def test_objects_that_are_there_are_as_described(
    document: dict[str, Any], tenants: Tenants, described: Any
) -> None:
    """The parameters that random ones do not find: ids of what exists."""
    with tenants.admin.http() as http:
        for path, key in (
            ("/v1/me", ""), ("/v1/projects", "project_id"), ("/v1/api_keys", ""),
            ("/v1/organizations", "organization_id"), ("/v1/members", ""),
            ("/v1/organization/projects", "project_id"), ("/v1/organization/users", "user_id"),
            ("/v1/organization/admin_api_keys", "key_id"), ("/v1/organization/roles", ""),
            ("/v1/organization/groups", ""), ("/v1/organization/workload_identity_providers", ""),
            ("/v1/audit_events", ""), ("/v1/clusters", ""), ("/v1/models", ""),
        ):  # fmt: skip
            answer = http.get(path)
            described[path]["GET"].validate_response(_requested(answer))
            if key and answer.json()["data"]:
                one = answer.json()["data"][0]["id"]
                operation = described[f"{path}/{{{key}}}"]["GET"]
                operation.validate_response(_requested(http.get(f"{path}/{one}")))


def _requested(answer: httpx.Response) -> Any:
    assert answer.status_code == 200
    return answer
