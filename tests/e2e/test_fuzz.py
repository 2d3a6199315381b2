"""Fuzzing of every route in /openapi.json: any input gets a response, never an internal error."""

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.clients.refusals import refusal
from tests.support.factories.tenants import Tenants

EXAMPLES = 500
TEXTS = st.one_of(
    st.text(max_size=20),
    st.text(st.characters(min_codepoint=0, max_codepoint=0x2FF), max_size=40),
    st.sampled_from([
        "", " ", "\0", "\x7f", "\u202e", "\ud800", "../..", "%00", "%2e%2e/", "a" * 300, "ä" * 4000,
        "'; DROP TABLE users_api_keys; --", "null", "-1", "9" * 40, "[]", "{}", "${x}", "a\r\nb: c",
        "proj_", "org-", "file-", "ftjob-", "platform_admin", "auto", "fine-tune", "true",
    ]),
)  # fmt: skip
NUMBERS = st.one_of(
    st.integers(), st.sampled_from([0, -1, 2**31, 2**63 - 1, 2**63, -(2**63), 10**40]),
    st.floats(allow_nan=True, allow_infinity=True),
)  # fmt: skip
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXTS, inner, max_size=4)),
    max_leaves=12,
)
# A control character is no header: the parser below us answers, and closes.
HEADER = st.text(st.characters(codec="latin-1", exclude_categories=("Cc", "Zs")), max_size=80)


# What only a library says.
RAW = ("Input should", "Value error", "Expected `", "Object contains", " - at `$")


# Method, path, operation and all schemas.
Operation = tuple[str, str, dict[str, Any], dict[str, Any]]


class Target:
    """The front door, and every route that it documents."""

    def __init__(self, http: httpx.Client, operations: list[Operation]):
        self.http = http
        self.operations = operations

    def __repr__(self) -> str:
        return "the front door"


@pytest.fixture(scope="module")
def target(tenants: Tenants) -> Iterator[Target]:
    with tenants.admin.http() as http:
        document = http.get("/openapi.json").json()
        schemas = document["components"]["schemas"]
        found = [
            (method.upper(), path, operation, schemas)
            for path, item in document["paths"].items()
            for method, operation in item.items()
        ]
        yield Target(http, found)


@st.composite
def shaped(draw: st.DrawFn, schema: dict[str, Any], schemas: dict[str, Any]) -> Any:
    """A value that follows a schema now and then."""
    if "$ref" in schema:
        schema = schemas[schema["$ref"].rpartition("/")[2]]
    if "anyOf" in schema:
        schema = draw(st.sampled_from(schema["anyOf"]))
        return draw(shaped(schema, schemas))
    if draw(st.integers(0, 9)) == 0:
        return draw(VALUES)
    if "enum" in schema or "const" in schema:
        return draw(st.sampled_from(schema.get("enum") or [schema["const"]]))
    match schema.get("type"):
        case "object":
            known = schema.get("properties", {})
            required = set(schema.get("required", ()))
            value = {
                name: draw(shaped(inner, schemas))
                for name, inner in known.items()
                if name in required or draw(st.booleans())
            }
            return value or draw(st.dictionaries(TEXTS, VALUES, max_size=3))
        case "array":
            return draw(st.lists(shaped(schema.get("items", {}), schemas), max_size=3))
        case "string":
            return draw(TEXTS)
        case "integer" | "number":
            return draw(NUMBERS)
        case _:
            return draw(VALUES)


def send(data: st.DataObject, target: Target) -> httpx.Response:
    """One drawn request."""
    method, path, operation, schemas = target.operations[
        data.draw(st.integers(0, len(target.operations) - 1))
    ]
    query: list[tuple[str, str]] = []
    for parameter in operation.get("parameters", ()):
        drawn = data.draw(shaped(parameter["schema"], schemas))
        text = str(drawn).encode("utf-8", "replace").decode()
        if parameter["in"] == "path":
            path = path.replace(f"{{{parameter['name']}}}", quote(text, safe=""))
        elif parameter["in"] == "query":
            query.append((parameter["name"], text))
    if data.draw(st.booleans()):
        query.append((data.draw(st.sampled_from(["metadata[k]", "group_by[]", "x", "stream"])),
                      data.draw(TEXTS).encode("utf-8", "replace").decode()))  # fmt: skip
    headers = [(b"content-type", b"application/json")]
    for name in (b"openai-project", b"x-request-id", b"idempotency-key", b"openai-organization"):
        if data.draw(st.integers(0, 14)) == 0:
            headers.append((name, data.draw(HEADER).encode("latin-1")))
    body = None
    if content := operation.get("requestBody", {}).get("content", {}).get("application/json"):
        body = json.dumps(data.draw(shaped(content["schema"], schemas))).encode()
    url = httpx.URL(str(target.http.base_url).rstrip("/") + path, params=query)
    return target.http.request(method, url, content=body, headers=headers)


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(data=st.data())
def test_no_request_is_a_fault_of_ours(data: st.DataObject, target: Target) -> None:
    answer = send(data, target)
    if answer.status_code >= 400:
        refused = refusal(answer)
        assert refused.status < 500
        assert not any(raw in refused.message for raw in RAW), refused.message
