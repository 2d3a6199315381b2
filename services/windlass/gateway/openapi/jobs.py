"""The creation of jobs, which is answered outside of FastAPI: made of the decoded types."""

from typing import Any

import msgspec

from windlass.backends.torchtune.document import TorchTuneSettings
from windlass.backends.trl.extra import TRLSettings
from windlass.gateway.openapi.messages import Schema
from windlass.gateway.openapi.objects import ref
from windlass.graders import Grader
from windlass.jobs_api.request import CreateJob

# Of `windlass.config`, by the backend; those that are not ours have settings of their own.
_SETTINGS = (TRLSettings, TorchTuneSettings)


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


def operation() -> dict[str, Any]:
    """POST /v1/fine_tuning/jobs."""
    return {
        "tags": ["fine-tuning"],
        "operationId": "create_job",
        "summary": "Creates a job; with an `Idempotency-Key`, a repeat answers the first one.",
        "parameters": [
            {
                "name": "idempotency-key",
                "in": "header",
                "required": False,
                "schema": {"type": "string", "maxLength": 128},
            }
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
