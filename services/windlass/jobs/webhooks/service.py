"""The servicer of webhooks for tenants."""

from typing import Any
from urllib.parse import urlsplit

from windlass.api.jobs.v1 import jobs_pb2 as pb
from windlass.api.jobs.v1 import jobs_pb2_grpc as rpc
from windlass.bounds import WEBHOOK_NAME_LENGTH
from windlass.core.clock import now_seconds
from windlass.core.db.paging import cut, page_size
from windlass.core.errors import InvalidArgument, ResourceExhausted
from windlass.core.ids import new_id
from windlass.core.outbound.receivers import Receivers, Unreachable
from windlass.core.outbound.signing import new_secret, signed
from windlass.core.outbound.urls import AddressRules
from windlass.core.rpc import audited
from windlass.core.rpc.auth import current
from windlass.jobs.domain.webhooks import EVENT_TYPES, Event, Webhook
from windlass.jobs.webhooks.store import WebhookStore

# The job that a sample names; there is none.
SAMPLE_JOB = "ftjob-sample"


class WebhooksServicer(rpc.WebhooksServiceServicer):
    """WebhooksService."""

    def __init__(self, store: WebhookStore, rules: AddressRules, receivers: Receivers):
        self._store = store
        self._rules = rules
        self._receivers = receivers
        self._testing: set[str] = set()

    async def CreateWebhook(
        self, request: pb.CreateWebhookRequest, context: Any
    ) -> pb.CreateWebhookResponse:
        """Stores a webhook and makes its secret."""
        self._rules.admit(request.url)
        webhook = Webhook(
            id=new_id("we_"),
            project_id=current().require_project(),
            name=_name(request.name or urlsplit(request.url).hostname or ""),
            url=request.url,
            event_types=tuple(dict.fromkeys(map(_event_type, request.event_types))) or EVENT_TYPES,
            created_at=now_seconds(),
        )
        secret = new_secret()
        await self._store.create(webhook, secret)
        # The rest of an address may be a secret of its receiver's.
        host = urlsplit(webhook.url).hostname or ""
        told = {"name": webhook.name, "host": host, "event_types": webhook.event_types}
        audited.change(None, told, resource=webhook.id)
        return pb.CreateWebhookResponse(webhook=_message(webhook), secret=secret)

    async def ListWebhooks(
        self, request: pb.ListWebhooksRequest, context: Any
    ) -> pb.ListWebhooksResponse:
        """The project's, newest first."""
        size = page_size(request.limit)
        rows = await self._store.list(
            current().require_project(), after=request.after, limit=size + 1
        )
        page, more = cut(rows, size)
        return pb.ListWebhooksResponse(webhooks=map(_message, page), has_more=more)

    async def GetWebhook(self, request: pb.GetWebhookRequest, context: Any) -> pb.Webhook:
        """Returns one webhook, without its secret."""
        found, _ = await self._store.get(current().require_project(), request.webhook_id)
        return _message(found)

    async def DeleteWebhook(
        self, request: pb.DeleteWebhookRequest, context: Any
    ) -> pb.DeleteWebhookResponse:
        """Ends its deliveries."""
        await self._store.delete(current().require_project(), request.webhook_id)
        return pb.DeleteWebhookResponse()

    async def TestWebhook(
        self, request: pb.TestWebhookRequest, context: Any
    ) -> pb.TestWebhookResponse:
        """Sends a sample and answers the receiver's status."""
        kind = _event_type(request.event_type, "event_type")
        webhook, secret = await self._store.get(current().require_project(), request.webhook_id)
        # One after the other, so that nobody floods a receiver by way of this server.
        if webhook.project_id in self._testing:
            raise ResourceExhausted("Another test of the project's webhooks is under way.")
        event = Event(id=new_id("evt_"), type=kind, created_at=now_seconds(), job_id=SAMPLE_JOB)
        body = event.body
        self._testing.add(webhook.project_id)
        try:
            headers = signed(event.id, body, secret, now_seconds())
            status = await self._receivers.post(webhook.project_id, webhook.url, body, headers)
        except Unreachable as error:
            raise InvalidArgument(
                f"The webhook was not reached: {error}.", reason="webhook_unreachable"
            ) from error
        finally:
            self._testing.discard(webhook.project_id)
        return pb.TestWebhookResponse(status_code=status)


def _name(text: str) -> str:
    if len(text) > WEBHOOK_NAME_LENGTH or not text.isprintable():
        raise InvalidArgument(
            f"name must have at most {WEBHOOK_NAME_LENGTH} printable characters.", param="name"
        )
    return text


def _event_type(text: str, param: str = "event_types") -> str:
    if text not in EVENT_TYPES:
        raise InvalidArgument(
            f"Unknown event type {text[:64]!r}; there are {', '.join(EVENT_TYPES)}.", param=param
        )
    return text


def _message(webhook: Webhook) -> pb.Webhook:
    return pb.Webhook(
        id=webhook.id,
        name=webhook.name,
        url=webhook.url,
        event_types=webhook.event_types,
        created_at=webhook.created_at,
    )
