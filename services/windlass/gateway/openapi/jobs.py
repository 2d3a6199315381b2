"""The creation of jobs, which is answered outside of FastAPI: made of the decoded types."""

from typing import Any

import msgspec

from windlass.backends.torchtune.document import TorchTuneSettings
from windlass.backends.trl.extra import TRLSettings
from windlass.bounds import IDEMPOTENCY_KEY_LENGTH
from windlass.gateway.openapi.messages import Schema
from windlass.gateway.openapi.objects import ref
from windlass.graders import Grader
from windlass.jobs_api.query import CreationQuery
from windlass.jobs_api.request import CreateJob

# Of `windlass.config`, by the backend; those that are not ours have settings of their own.
_SETTINGS = (TRLSettings, TorchTuneSettings)


_DRY_RUN = (
    "Creates a job; with an `Idempotency-Key`, a repeat answers the first one. With `dry_run` "
    "everything is checked and nothing is created: the answer is the job as it would be, without "
    "an id, and `windlass.queue.reason` says where it would run or why it would wait. Then "
    "`training_file` and `windlass.evaluation.file` may be left out, and `training_format`, "
    "`training_examples`, `validation_format` and `evaluation_format` say what is known of files "
    "that are not uploaded yet."
)


def components() -> dict[str, Schema]:
    """Schemas of the body and of what its backends and graders read, by their types' names."""
    (_, *settings, grader), found = msgspec.json.schema_components(
        [CreateJob, *_SETTINGS, Grader], ref_template="#/components/schemas/{name}"
    )
    config = found["Extension"]["properties"]["config"]
    config["anyOf"] = [*settings, *config["anyOf"]]
    found["ReinforcementMethod"]["properties"]["grader"] = grader
    found["AskedEvaluation"]["properties"]["grader"] = grader
    found["CreateJob"]["properties"]["hyperparameters"]["deprecated"] = True
    return found


def _query() -> list[dict[str, Any]]:
    (_,), found = msgspec.json.schema_components([CreationQuery], ref_template="{name}")
    fields = found["CreationQuery"]["properties"]
    return [
        {"name": name, "in": "query", "required": False, "schema": _inlined(schema, found)}
        for name, schema in sorted(fields.items())
    ]


def _inlined(schema: Schema, found: dict[str, Schema]) -> Schema:
    """The schema of a parameter, which is left out rather than null."""
    (kept,) = [one for one in schema.get("anyOf", [schema]) if one.get("type") != "null"]
    return found[kept["$ref"]] if "$ref" in kept else kept


def operation() -> dict[str, Any]:
    """POST /v1/fine_tuning/jobs."""
    return {
        "tags": ["fine-tuning"],
        "operationId": "create_job",
        "summary": "Creates a job; with an `Idempotency-Key`, a repeat answers the first one.",
        "description": _DRY_RUN,
        "parameters": [
            *_query(),
            {
                "name": "idempotency-key",
                "in": "header",
                "required": False,
                "schema": {"type": "string", "maxLength": IDEMPOTENCY_KEY_LENGTH},
            },
        ],
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": ref("CreateJob")}},
        },
        "responses": {
            "200": {
                "description": "Done.",
                "content": {"application/json": {"schema": ref("FineTuningJob")}},
            }
        },
    }
