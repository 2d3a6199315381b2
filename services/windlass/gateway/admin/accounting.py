"""/v1/usage, /v1/audit_events and /v1/audit_checkpoints."""

from typing import Annotated

import orjson
from fastapi import Query, Request

from windlass.api.rbac.v1 import rbac_pb2, rbac_pb2_grpc
from windlass.api.usage.v1 import usage_pb2 as pb
from windlass.api.usage.v1 import usage_pb2_grpc as rpc
from windlass.bounds import LATEST
from windlass.core.app import App
from windlass.gateway.openai.rendering import Json, page
from windlass.gateway.parameters import INT64, After, LongLimit, bracketed
from windlass.gateway.plain import enum_name, plain
from windlass.gateway.resource_router import ResourceRouter

# OpenAI's name of a group to ours.
_GROUPS = {"api_key_id": "key_id"}
Time = Annotated[int, Query(ge=0, le=LATEST, description="Unix seconds.")]
Sequence = Annotated[int, Query(ge=0, le=INT64, description="Sequence of an event.")]
VerifyLimit = Annotated[int, Query(ge=0, le=20_000, description="Number of events to check.")]
CheckpointsLimit = Annotated[int, Query(ge=0, le=500, description="Number of items on a page.")]


def accounting_router(app: App) -> ResourceRouter:
    """Usage and the audit log."""
    router = ResourceRouter(tags=["usage and audit"])
    usage = app.clients.stub(rpc.UsageServiceStub)
    rbac = app.clients.stub(rbac_pb2_grpc.RbacServiceStub)

    @router.get("/usage")
    async def query_usage(
        request: Request,
        start_time: Time,
        end_time: Time = 0,
        bucket_width: Annotated[str, Query(pattern="^(1?m|1?h|1?d|minute|hour|day)$")] = "day",
        limit: LongLimit = 0,
        page: Annotated[str, Query(max_length=128)] = "",
    ) -> Json:
        """Tokens in buckets of time, in UTC; each `kind` apart.

        `group_by`, `models`, `project_ids` and `api_key_ids` may repeat.
        """
        widths = {"m": "minute", "h": "hour", "d": "day"}
        answer = await usage.QueryUsage(
            pb.QueryUsageRequest(
                start_at=start_time,
                end_at=end_time,
                bucket_width=widths[bucket_width.removeprefix("1")[0]],
                group_by=[_GROUPS.get(name, name) for name in bracketed(request, "group_by")],
                models=bracketed(request, "models"),
                project_ids=bracketed(request, "project_ids"),
                key_ids=bracketed(request, "api_key_ids"),
                limit=limit,
                page=page,
            )
        )
        return {
            "object": "list",
            "data": [_bucket(bucket) for bucket in answer.buckets],
            "has_more": answer.has_more,
            "next_page": answer.next_page or None,
        }

    @router.get("/audit_events")
    async def list_audit_events(
        after: After = "",
        limit: LongLimit = 0,
        order: Annotated[str, Query(pattern="^(asc|desc)$")] = "desc",
    ) -> Json:
        """Lists changes and attempted changes, newest first."""
        answer = await rbac.ListAuditEvents(
            rbac_pb2.ListAuditEventsRequest(after=after, limit=limit, order=order)
        )
        return page([plain(event, "audit_event") for event in answer.events], answer.has_more)

    @router.get("/audit_events/verification")
    async def verify_audit_events(after: Sequence = 0, limit: VerifyLimit = 0) -> Json:
        """Checks a part of the log; the next begins `after` its `sequence` while `has_more`."""
        answer = await rbac.VerifyAuditEvents(
            rbac_pb2.VerifyAuditEventsRequest(after=after, limit=limit)
        )
        return plain(answer, "audit_verification")

    @router.get("/audit_checkpoints")
    async def list_audit_checkpoints(after: Sequence = 0, limit: CheckpointsLimit = 0) -> Json:
        """Lists signed checkpoints of the log, oldest first, and what verifies them."""
        answer = await rbac.ListAuditCheckpoints(
            rbac_pb2.ListAuditCheckpointsRequest(after=after, limit=limit)
        )
        made = [
            {"id": str(one.sequence), **plain(one, "audit_checkpoint")}
            for one in answer.checkpoints
        ]
        return page(made, answer.has_more) | {
            "public_key": orjson.loads(answer.public_key),
            "dropped": answer.dropped or None,
        }

    return router


def _bucket(bucket: pb.UsageBucket) -> Json:
    return {
        "object": "bucket",
        "start_time": bucket.start_at,
        "end_time": bucket.end_at,
        "results": [_result(result) for result in bucket.results],
    }


def _result(result: pb.UsageResult) -> Json:
    return {
        "object": "usage.result",
        "input_tokens": result.input_tokens,
        "output_tokens": result.output_tokens,
        "input_cached_tokens": result.input_cached_tokens,
        "output_reasoning_tokens": result.output_reasoning_tokens,
        "num_model_requests": result.requests,
        "device_seconds": result.device_time_ms / 1000,
        "num_estimated_requests": result.estimated_requests,
        "project_id": result.project_id or None,
        "api_key_id": result.key_id or None,
        "user_id": result.user_id or None,
        "model": result.model or None,
        "kind": enum_name(pb.UsageKind.DESCRIPTOR, result.kind) if result.kind else None,
    }
