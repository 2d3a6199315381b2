"""Schemas of the objects that OpenAI has a shape for, as rendering.py makes them."""

from windlass.gateway.openapi.messages import Schema, nullable, obj

TEXT: Schema = {"type": "string"}
COUNT: Schema = {"type": "integer"}
FLAG: Schema = {"type": "boolean"}
NUMBER: Schema = {"type": "number"}
ANYTHING: Schema = {}
TEXTS: Schema = {"type": "object", "additionalProperties": TEXT}


def kind(name: str) -> Schema:
    """The value of `object`."""
    return {"const": name}


def ref(name: str) -> Schema:
    """A component."""
    return {"$ref": f"#/components/schemas/{name}"}


def listed(schema: Schema) -> Schema:
    """Several."""
    return {"type": "array", "items": schema}


def page(name: str) -> Schema:
    """A page of a component's objects."""
    return obj(
        {
            "object": kind("list"),
            "data": listed(ref(name)),
            "has_more": FLAG,
            "first_id": nullable(TEXT),
            "last_id": nullable(TEXT),
        },
        optional=("first_id", "last_id"),
    )


def deleted(name: str) -> Schema:
    """The schema of the answer to a deletion."""
    return obj({"id": TEXT, "object": kind(name), "deleted": {"const": True}})


PROVENANCE = obj(
    {
        "filename": TEXT,
        "format": TEXT,
        "sha256": TEXT,
        "rows": COUNT,
        "skipped": COUNT,
        "converter": TEXT,
    }
)
FILE = obj(
    {
        "id": TEXT,
        "object": kind("file"),
        "bytes": COUNT,
        "created_at": COUNT,
        "expires_at": nullable(COUNT),
        "filename": TEXT,
        "purpose": TEXT,
        "status": {"type": "string", "enum": ["uploaded", "processed", "error"]},
        "status_details": nullable(TEXT),
        "windlass": obj(
            {
                "sha256": TEXT,
                "format": nullable(TEXT),
                "examples": nullable(COUNT),
                "provenance": nullable(PROVENANCE),
            }
        ),
    }
)
FOOTPRINT = {
    **obj(
        dict.fromkeys(
            (
                "weight_bytes", "kv_bytes", "windowed_kv_bytes", "window", "adapter_bytes",
                "heads", "kv_heads", "context_length", "weight_width", "experts",
            ),
            COUNT,
        )
    ),
    "description": "What the model takes of the memory of devices that serve it, in bytes: its "
    "weights, keys and values of each token in 16 bits, and each rank of an adapter; `experts` are "
    "those of a layer, 1 for a model without, 0 where that is not known.",
}  # fmt: skip
QUANTIZATION = {
    **obj({"method": TEXT, "bits": nullable(COUNT)}),
    "description": "How the weights are quantized, as config.json and the weights' headers say: "
    "the word of its `quant_method`, such as `awq`, or `unknown`, and the bits of a weight.",
}
PRESET = {
    **obj({"name": TEXT, "lora_targets": listed(TEXT), "arguments": {"type": "object"}}),
    "description": "What the preset of the model's family says where nobody else does: the layers "
    "of an adapter, and arguments of engines by their kind.",
}
MODEL = obj(
    {
        "id": TEXT,
        "object": kind("model"),
        "created": COUNT,
        "owned_by": TEXT,
        "windlass": {
            "type": "object",
            "properties": {
                "warnings": {
                    **listed(TEXT),
                    "description": "Sentences on what the model will not do.",
                },
                "footprint": nullable(FOOTPRINT),
                "quantization": nullable(QUANTIZATION),
                "preset": nullable(PRESET),
            },
        },
    }
)
QUEUE = obj({"name": nullable(TEXT), "position": nullable(COUNT), "reason": nullable(TEXT)})
JOB_STATE: Schema = {
    "type": "string",
    "enum": [
        "validating", "queued", "starting", "running", "pausing", "paused", "cancelling",
        "finalizing", "succeeded", "failed", "cancelled",
    ],
}  # fmt: skip
SCORE = obj({"mean_reward": NUMBER, "ungraded": COUNT})
EVALUATION = obj(
    {
        "file": TEXT,
        "grader": {"type": "object"},
        "max_examples": COUNT,
        "max_completion_tokens": COUNT,
        "temperature": NUMBER,
        "result": nullable(
            obj(
                {
                    "examples": COUNT,
                    "base": SCORE,
                    "fine_tuned": SCORE,
                    "wins": COUNT,
                    "ties": COUNT,
                    "losses": COUNT,
                }
            )
        ),
    }
)
JOB_EXTRA: Schema = {
    "type": "object",
    "description": "Windlass' fields of a job beyond OpenAI's.",
    "properties": {
        "state": JOB_STATE,
        "attempt": COUNT,
        "generation": COUNT,
        "cluster": nullable(TEXT),
        "queue": QUEUE,
        "progress": obj(
            {
                "step": COUNT,
                "total_steps": COUNT,
                "tokens_per_second": NUMBER,
                "train_loss": nullable(NUMBER),
                "train_mean_reward": nullable(NUMBER),
                "phase": nullable(TEXT),
                "trained_tokens": COUNT,
            }
        ),
        "method": TEXT,
        "backend": TEXT,
        "framework": nullable(TEXT),
        "project_id": TEXT,
        "evaluation": nullable(EVALUATION),
    },
    "required": ["state", "attempt", "queue", "progress", "method", "backend", "project_id"],
}
JOB = obj(
    {
        "id": TEXT,
        "object": kind("fine_tuning.job"),
        "created_at": COUNT,
        "finished_at": nullable(COUNT),
        "estimated_finish": nullable(COUNT),
        "error": nullable(obj({"code": TEXT, "message": TEXT, "param": nullable(TEXT)})),
        "fine_tuned_model": nullable(TEXT),
        "hyperparameters": {"type": "object"},
        "integrations": {"type": "array", "items": {"type": "object"}},
        "metadata": TEXTS,
        "method": {
            "type": "object",
            "properties": {
                "type": {"type": "string", "enum": ["supervised", "dpo", "reinforcement"]}
            },
            "required": ["type"],
        },
        "model": TEXT,
        "organization_id": TEXT,
        "result_files": listed(TEXT),
        "seed": COUNT,
        "status": {
            "type": "string",
            "enum": ["validating_files", "queued", "running", "succeeded", "failed", "cancelled"],
        },
        "trained_tokens": nullable(COUNT),
        "training_file": TEXT,
        "validation_file": nullable(TEXT),
        "user_provided_suffix": nullable(TEXT),
        "windlass": JOB_EXTRA,
    }
)
EXPLANATION = obj(
    {
        "object": kind("fine_tuning.job.explanation"),
        "job_id": TEXT,
        "state": JOB_STATE,
        "summary": TEXT,
        "cluster": nullable(TEXT),
        "queue": QUEUE,
        "decided_at": nullable(COUNT),
        "verdicts": listed(
            obj(
                {
                    "cluster": TEXT,
                    "name": TEXT,
                    "chosen": FLAG,
                    "fits": FLAG,
                    "reason": TEXT,
                    "points": {"type": "object", "additionalProperties": NUMBER},
                }
            )
        ),
    }
)
EVENT = obj(
    {
        "id": TEXT,
        "object": kind("fine_tuning.job.event"),
        "created_at": COUNT,
        "level": {"type": "string", "enum": ["info", "warn", "error"]},
        "message": TEXT,
        "type": TEXT,
        "data": ANYTHING,
    }
)
CHECKPOINT = obj(
    {
        "id": TEXT,
        "object": kind("fine_tuning.job.checkpoint"),
        "created_at": COUNT,
        "fine_tuned_model_checkpoint": TEXT,
        "fine_tuning_job_id": TEXT,
        "metrics": {"type": "object", "additionalProperties": NUMBER},
        "step_number": COUNT,
    }
)
PERMISSION = obj(
    {
        "id": TEXT,
        "object": kind("checkpoint.permission"),
        "created_at": COUNT,
        "project_id": TEXT,
    }
)
FETCH = obj(
    {
        "id": TEXT,
        "object": kind("model.fetch"),
        "model": TEXT,
        "source": TEXT,
        "revision": TEXT,
        "commit": nullable(TEXT),
        "status": TEXT,
        "bytes_done": COUNT,
        "bytes_total": nullable(COUNT),
        "retry_reason": nullable(TEXT),
        "waits_for": nullable(TEXT),
        "error": nullable(obj({"code": TEXT, "message": TEXT})),
        "global": FLAG,
        "created_at": COUNT,
        "finished_at": nullable(COUNT),
    }
)
IMPORT = obj(
    {
        "object": kind("model.import"),
        "import_id": TEXT,
        "uploads": listed(obj({"path": TEXT, "url": TEXT})),
    }
)
RUNTIME = obj(
    {
        "id": TEXT,
        "object": kind("runtime"),
        "framework": TEXT,
        "schema_version": COUNT,
        "methods": listed(TEXT),
        "clusters": listed(obj({"id": TEXT, "name": TEXT, "executor": TEXT, "gpus": COUNT})),
    }
)
USAGE = obj(
    {
        "object": kind("list"),
        "data": listed(
            obj(
                {
                    "object": kind("bucket"),
                    "start_time": COUNT,
                    "end_time": COUNT,
                    "results": listed(
                        obj(
                            {
                                "object": kind("usage.result"),
                                "input_tokens": COUNT,
                                "output_tokens": COUNT,
                                "input_cached_tokens": COUNT,
                                "output_reasoning_tokens": COUNT,
                                "num_model_requests": COUNT,
                                "device_seconds": {"type": "number"},
                                "num_estimated_requests": COUNT,
                                "project_id": nullable(TEXT),
                                "api_key_id": nullable(TEXT),
                                "user_id": nullable(TEXT),
                                "model": nullable(TEXT),
                                "kind": nullable(TEXT),
                            }
                        )
                    ),
                }
            )
        ),
        "has_more": FLAG,
        "next_page": nullable(TEXT),
    }
)
ERROR = obj(
    {
        "error": obj(
            {
                "message": TEXT,
                "type": TEXT,
                "param": nullable(TEXT),
                "code": nullable(TEXT),
            }
        )
    }
)
