"""What /openapi.json promises is kept: the longest value is taken, and one longer is not."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx
from tests.support.clients.refusals import refusal
from tests.support.factories.tenants import Tenants

Schema = dict[str, Any]
# Positions in lists, which are no values that anything keeps.
CURSORS = {"after", "page", "last-event-id", "limit"}
# Operations whose bodies other tests try: those of engines, and the document of a job.
ELSEWHERE = ("/v1/chat/completions", "/v1/completions", "/v1/fine_tuning/jobs")


def _words(length: int) -> str:
    """A name of dotted labels of at most 63 letters."""
    return ".".join("a" * min(63, length - start) for start in range(0, length, 64))


# Values of a length, of fields that take not just any word.
SHAPED: dict[str, Callable[[int], str]] = {
    "issuer": lambda length: "https://example.org/".ljust(length, "a"),
    "expression": lambda length: f"'{'a' * (length - 2)}'",
    "url": lambda length: "https://example.org/".ljust(length, "a"),
    "source": lambda length: f"hf://{'u' * 96}/".ljust(length, "a"),
    "path": lambda length: "a" * (length - 5) + ".json",
    "addresses": lambda length: f"{_words(length - 6)}:65535",
    "resource": lambda length: f"{_words(length - 64)}/{'a' * 63}",
    "key": lambda length: f"{_words(length - 64)}/{'a' * 63}",
    "delete": lambda length: "cluster_queue/".ljust(length, "a"),
    "networks": lambda length: "10.0.0.0/8".rjust(length),
    "prefix": lambda length: "/".rjust(length, "a"),
}
_BUCKET = {
    "kind": "bucket", "url": "https://example.org", "bucket": "aaa", "access_key_id": "a",
    "secret_access_key": "a",
}  # fmt: skip
# What else a field needs beside it.
BESIDE: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("bucket", "prefix", "region", "access_key_id", "secret_access_key"), _BUCKET),
    "attribute": {"expression": "assertion.sub"},
    "local_queue": {"cluster_queue": "team-a"},
    "value": {"key": "a"},
    "user_id": {"role": "organization_owner"},
    "end_time": {"start_time": 1},
    "training_examples": {"dry_run": "true"},
    "arguments": {"engine": "vllm"},
    "nodes": {"engine": "vllm"},
    "draft_tokens": {"draft_model": "none"},
    "replicas": {"start": "0 8 * * *", "end": "0 9 * * *"},
}
# Fields whose greatest value has none beside it: a beginning needs an end.
ALONE = {"start_time"}


@dataclass(frozen=True)
class Bounded:
    """A field with a bound: where it is, as a way from the body, or a name in the query."""

    method: str
    path: str
    place: str
    way: tuple[str, ...]
    schema: Schema

    @property
    def name(self) -> str:
        return next(step for step in reversed(self.way) if step != "[]")

    def value(self, excess: int) -> Any:
        """The greatest value, and so much more."""
        if "maxLength" in self.schema:
            length = int(self.schema["maxLength"]) + excess
            shaped = SHAPED.get(self.name)
            return shaped(length) if shaped else "a" * length
        most = self.schema["maximum"]
        return (int(most) if self.schema.get("type") == "integer" else most) + excess


class Document:
    """/openapi.json, with its references followed."""

    def __init__(self, document: Schema):
        self._document = document

    def fields(self) -> Iterator[Bounded]:
        for path, item in self._document["paths"].items():
            for method, operation in item.items():
                for one in operation.get("parameters", ()):
                    if one["in"] == "query" and one["name"] not in CURSORS:
                        for way, schema in self._bounded(one["schema"], (one["name"],)):
                            yield Bounded(method, path, "query", way, schema)
                body = operation.get("requestBody", {}).get("content", {}).get("application/json")
                if body and path not in ELSEWHERE:
                    for way, schema in self._bounded(body["schema"], ()):
                        yield Bounded(method, path, "body", way, schema)

    def body(self, field: Bounded) -> Schema:
        """The least body of the field's operation."""
        operation = self._document["paths"][field.path][field.method]
        made: Schema = self._least(
            operation["requestBody"]["content"]["application/json"]["schema"]
        )
        return made

    def put(self, field: Bounded, value: Any) -> Schema:
        """A body with the field, and what is needed around it."""
        operation = self._document["paths"][field.path][field.method]
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        made: Schema = self._put(schema, field.way, value)
        return made

    def _resolved(self, schema: Schema) -> Schema:
        if "$ref" in schema:
            return self._resolved(self._document["components"]["schemas"][schema["$ref"][21:]])
        for one in schema.get("anyOf", ()):
            if one.get("type") != "null":
                return self._resolved(one)
        return schema

    def _bounded(
        self, schema: Schema, way: tuple[str, ...]
    ) -> Iterator[tuple[tuple[str, ...], Schema]]:
        schema = self._resolved(schema)
        if "maxLength" in schema or "maximum" in schema:
            yield way, schema
        for name, inner in schema.get("properties", {}).items():
            yield from self._bounded(inner, (*way, name))
        if "items" in schema:
            yield from self._bounded(schema["items"], (*way, "[]"))

    def _put(self, schema: Schema, way: tuple[str, ...], value: Any) -> Any:
        if not way:
            return value
        schema = self._resolved(schema)
        if way[0] == "[]":
            return [self._put(schema["items"], way[1:], value)]
        inner = self._put(schema["properties"][way[0]], way[1:], value)
        return self._least(schema) | BESIDE.get(way[0], {}) | {way[0]: inner}

    def _least(self, schema: Schema) -> Any:
        schema = self._resolved(schema)
        if "enum" in schema or "const" in schema:
            return schema["const"] if "const" in schema else schema["enum"][0]
        if schema.get("minProperties"):
            return {"a": self._least(schema["additionalProperties"])}
        if schema.get("type") == "object":
            wanted = schema.get("required", ())
            return {name: self._least(schema["properties"][name]) for name in wanted}
        if schema.get("type") == "array":
            return [self._least(schema["items"])] if schema.get("minItems") else []
        if schema.get("type") in ("integer", "number"):
            return int(schema.get("minimum", 0))
        return "a" * max(1, schema.get("minLength", 1))


def test_what_is_promised_is_taken_and_one_more_is_not(tenants: Tenants) -> None:
    with tenants.admin.http() as http:
        # Of its own: policies, quotas and roles that it leaves behind are nobody else's.
        organization = http.post("/v1/organizations", json={"title": "Bounded"}).json()["id"]
        http.headers["OpenAI-Organization"] = organization
        project = http.post("/v1/projects", json={"title": "Bounded"}).json()["id"]
        http.headers["OpenAI-Project"] = project
        made = http.post("/v1/clusters", json={"name": "bounded"}).json()
        key = http.post("/v1/api_keys", json={"name": "bounded"}).json()
        names = {
            "cluster_id": made["id"],
            "key_id": key["id"],
            "organization_id": "none",
            "role_id": "none",
            "group_id": "none",
            "provider_id": "none",
            "invite_id": "none",
            "domain": "none.example",
            "certificate_id": "none",
            "session_id": "none",
            "elevation_id": "none",
            "destination_id": "none",
            "identity_provider_id": "none",
            "federation_rule_id": "none",
            "permission": "files.read",
            "project_id": project,
            "name": "jobs",
            "checkpoint": "none",
            "model": "never-was",
        }
        document = Document(http.get("/openapi.json").json())
        fields = list(document.fields())
        assert len(fields) > 50
        wrong = [said for field in fields if (said := _tried(document, http, field, names))]
    assert not wrong, "\n".join(wrong)


def _tried(document: Document, http: httpx.Client, field: Bounded, names: dict[str, str]) -> str:
    """Returns what is wrong with the promise of a field; nothing where it is kept."""
    what = f"{field.method} {field.path} {'.'.join(field.way)}"
    path = field.path.replace(":path", "").format(
        **dict.fromkeys(("job_id", "user_id", "service_account_id"), "x") | names
    )

    def ask(value: Any) -> httpx.Response:
        if field.place == "query":
            beside = BESIDE.get(field.name, {})
            return http.request(field.method, path, params=beside | {field.name: value})
        return http.request(field.method, path, json=document.put(field, value))

    taken, beyond = ask(field.value(0)), ask(field.value(1))
    is_refused = taken.status_code == 400 and field.name in str(refusal(taken).param)
    if taken.status_code >= 500 or (is_refused and field.name not in ALONE):
        return f"{what}: the greatest is refused: {taken.text}"
    if beyond.status_code != 400 or field.name not in str(refusal(beyond).param):
        return f"{what}: one more is answered {beyond.status_code} {beyond.text[:200]}"
    return ""
