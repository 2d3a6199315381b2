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
    answered(send(data, target))


def answered(answer: httpx.Response) -> httpx.Response:
    """The answer, which is none of a fault of ours."""
    if answer.request.url.path == "/v1/oauth/token" and answer.status_code in (400, 429):
        # Errors of RFC 6749.
        assert answer.json().keys() == {"error", "error_description"}, answer.text
        return answer
    if answer.status_code >= 400:
        refused = refusal(answer)
        asked = answer.request
        assert refused.status < 500, (asked.method, asked.url, asked.content, refused)
        assert not any(raw in refused.message for raw in RAW), refused.message
    return answer


BOUNDARY = b"fuzzed"
NAMES = st.one_of(
    st.sampled_from([
        "file", "purpose", "expires_after[anchor]", "expires_after[seconds]", "expires_after",
        "expires_after[", "expires_after[seconds][x]", "metadata", "",
    ]),
    TEXTS,
)  # fmt: skip
SECONDS = st.one_of(
    st.sampled_from([
        "3600", "003600", "0" * 5000 + "3600", "+3600", "-3600", "3_600", " 3600", "3600 ", "36e2",
        "3600.0", "0x10", "1" * 400, "9" * 5000, "٣٦٠٠", "³", "NaN", "Infinity", "true", "",
        str(2**63), str(30 * 86400), str(30 * 86400 + 1),
    ]),
    st.integers().map(str), st.floats().map(str),
)  # fmt: skip
CONTENTS = st.one_of(
    st.binary(max_size=60),
    SECONDS.map(str.encode),
    st.sampled_from([b"fine-tune", b"user_data", b"created_at", b"{}\n", b"--fuzzed--", b"\r\n"]),
)


@st.composite
def forms(draw: st.DrawFn) -> bytes:
    """A form that is one now and then."""
    lines = []
    for _ in range(draw(st.integers(0, 5))):
        name = draw(NAMES).encode("utf-8", "replace").replace(b'"', b"%22")
        head = b'Content-Disposition: form-data; name="' + name + b'"'
        if draw(st.booleans()):
            file = draw(TEXTS).encode("utf-8", "replace").replace(b'"', b"%22")
            head += b'; filename="' + file + b'"'
        if draw(st.booleans()):
            head += b"\r\nContent-Type: " + draw(HEADER).encode("latin-1")
        if draw(st.integers(0, 9)) == 0:
            head = draw(st.binary(max_size=40))
        lines.append(b"--" + BOUNDARY + b"\r\n" + head + b"\r\n\r\n" + draw(CONTENTS) + b"\r\n")
    whole = b"".join(lines) + b"--" + BOUNDARY + b"--\r\n"
    return whole[: draw(st.integers(0, len(whole)))] if draw(st.booleans()) else whole


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(
    form=forms(),
    said=st.sampled_from([
        b"multipart/form-data; boundary=fuzzed", b'multipart/form-data; boundary="fuzzed"',
        b"multipart/form-data", b"multipart/form-data; boundary=", b"multipart/mixed; boundary=x",
    ]),
)  # fmt: skip
def test_no_form_is_a_fault_of_ours(form: bytes, said: bytes, target: Target) -> None:
    answered(target.http.post("/v1/files", content=form, headers=[(b"content-type", said)]))


@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(seconds=SECONDS)
def test_a_files_time_is_a_number_within_bounds(seconds: str, target: Target) -> None:
    fields = {"purpose": "user_data", "expires_after[anchor]": "created_at"}
    answer = answered(
        target.http.post(
            "/v1/files",
            data=fields | {"expires_after[seconds]": seconds},
            files={"file": ("x.bin", b"x")},
        )
    )
    if answer.status_code == 200:
        made = answer.json()
        assert 3600 <= made["expires_at"] - made["created_at"] <= 30 * 86400
    else:
        assert refusal(answer, 400).param == "expires_after.seconds"


OUTER: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"model": "none", "messages": [{"role": "user", "content": "x"}]},
    "/v1/completions": {"model": "none", "prompt": "x"},
    "/v1/fine_tuning/jobs": {"model": "none", "training_file": "file-none"},
    "/v1/models/imports": {"id": "none", "files": []},
    "/v1/fine_tuning/alpha/graders/run": {"grader": {"type": "multi"}, "model_sample": "x"},
}


@pytest.mark.parametrize("depth", [30, 500, 1000, 5000, 100_000])
@pytest.mark.parametrize("shape", [b"[%s]", b'{"a":%s}', b'[{"type":"x","a":%s}]'])
@pytest.mark.parametrize("path", OUTER)
def test_no_depth_is_a_fault_of_ours(path: str, shape: bytes, depth: int, target: Target) -> None:
    left, right = shape.split(b"%s")
    deep = left * depth + b"1" + right * depth
    fields = [*OUTER[path], "metadata", "method", "tools", "response_format", "windlass", "hyper"]
    bodies = [deep, *(_with(OUTER[path], field, deep) for field in fields)]
    for body in bodies:
        headers = {"content-type": "application/json"}
        answered(target.http.post(path, content=body, headers=headers))


def _with(outer: dict[str, Any], field: str, deep: bytes) -> bytes:
    """The body with a field as deep as that."""
    return json.dumps({**outer, field: "@"}).encode().replace(b'"@"', deep)
