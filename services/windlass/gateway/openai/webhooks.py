"""/v1/webhook_endpoints: addresses that hear of a project's ended jobs."""

from typing import Annotated

from pydantic import Field

from windlass.api.jobs.v1 import jobs_pb2 as pb
from windlass.api.jobs.v1 import jobs_pb2_grpc as rpc
from windlass.bounds import WEBHOOK_NAME_LENGTH, WEBHOOK_URL_LENGTH
from windlass.core.app import App
from windlass.gateway.openai.rendering import Json, page
from windlass.gateway.parameters import After, Body, Limit
from windlass.gateway.plain import plain
from windlass.gateway.resource_router import ResourceRouter

KIND = "webhook_endpoint"


class CreateWebhook(Body):
    """An address, and the events that it wants."""

    url: Annotated[
        str, Field(max_length=WEBHOOK_URL_LENGTH, description="URL that events are posted to.")
    ]
    name: Annotated[
        str,
        Field(
            max_length=WEBHOOK_NAME_LENGTH,
            description="Name for people; empty: the host of the URL.",
        ),
    ] = ""
    event_types: Annotated[
        list[str],
        Field(max_length=16, description="Events, as fine_tuning.job.succeeded; none: all."),
    ] = []


class TestWebhook(Body):
    """The sample to send."""

    event_type: Annotated[str, Field(description="Event, as fine_tuning.job.succeeded.")] = (
        "fine_tuning.job.succeeded"
    )


def webhooks_router(app: App) -> ResourceRouter:
    """Webhooks."""
    router = ResourceRouter(prefix="/webhook_endpoints", tags=["webhooks"])
    webhooks = app.clients.stub(rpc.WebhooksServiceStub)

    @router.post("")
    async def create_webhook(body: CreateWebhook) -> Json:
        """A new webhook; its `signing_secret` is in this answer and nowhere else."""
        answer = await webhooks.CreateWebhook(
            pb.CreateWebhookRequest(name=body.name, url=body.url, event_types=body.event_types)
        )
        return {**plain(answer.webhook, KIND), "signing_secret": answer.secret}

    @router.get("")
    async def list_webhooks(after: After = "", limit: Limit = 0) -> Json:
        """The project's webhooks, newest first."""
        answer = await webhooks.ListWebhooks(pb.ListWebhooksRequest(after=after, limit=limit))
        return page([plain(one, KIND) for one in answer.webhooks], answer.has_more)

    @router.get("/{webhook_id}")
    async def retrieve_webhook(webhook_id: str) -> Json:
        """Returns one webhook, without its secret."""
        return plain(await webhooks.GetWebhook(pb.GetWebhookRequest(webhook_id=webhook_id)), KIND)

    @router.delete("/{webhook_id}")
    async def delete_webhook(webhook_id: str) -> Json:
        """Deletes a webhook; what it was still to hear is not sent."""
        await webhooks.DeleteWebhook(pb.DeleteWebhookRequest(webhook_id=webhook_id))
        return {"id": webhook_id, "object": f"{KIND}.deleted", "deleted": True}

    @router.post("/{webhook_id}/test")
    async def test_webhook(webhook_id: str, body: TestWebhook) -> Json:
        """Sends a sample event and answers with the status of the response."""
        answer = await webhooks.TestWebhook(
            pb.TestWebhookRequest(webhook_id=webhook_id, event_type=body.event_type)
        )
        return {
            "object": f"{KIND}.test",
            "webhook_endpoint_id": webhook_id,
            "event_type": body.event_type,
            "status_code": answer.status_code,
            "success": True,
        }

    return router
