"""Answers that a request consents to have kept: found out before, and told after.

Only a request with `store: true` asks anything; all others pass by without a look.
"""

from collections.abc import Iterable
from typing import Any

import grpc
import msgspec
from msgspec import Struct

from windlass.api.inference.v1 import feeds_pb2 as pb
from windlass.api.inference.v1.feeds_pb2_grpc import FeedsInternalServiceAsyncStub
from windlass.api.inference.v1.inference_pb2 import TrainingSample
from windlass.core import telemetry
from windlass.core.rpc.auth import Principal
from windlass.gateway.asgi import Headers
from windlass.gateway.errors import HttpError
from windlass.gateway.exchange import HttpExchange
from windlass.gateway.inference.head import Head
from windlass.inference_api.routes import CHAT, COMPLETIONS, KEPT

log = telemetry.logger("gateway.inference")
# An answer waits no longer for being kept.
KEEP_SECONDS = 5.0
# Of what a grader sees of a request; what is larger is not kept.
ITEM_BYTES = 1 << 20
# Whatever else ends an answer makes it none to learn from.
_WHOLE = ("stop", "length")
_IDS = ("prompt_token_ids", "token_ids")


class _FedMessage(Struct):
    content: str | None = None


class _FedChoice(Struct):
    message: _FedMessage | None = None
    text: str | None = None
    finish_reason: str | None = None
    prompt_token_ids: list[int] | None = None
    token_ids: list[int] | None = None


class _FedBody(Struct):
    choices: list[_FedChoice] = []
    prompt_token_ids: list[int] | None = None


_answer = msgspec.json.Decoder(_FedBody)
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_choices = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])


class Consent:
    """Consent of one request, and the feed that it is for."""

    def __init__(
        self,
        feeds: FeedsInternalServiceAsyncStub,
        exchange: HttpExchange,
        feed_id: str,
        body: bytes,
    ):
        self._feeds = feeds
        self._exchange = exchange
        self._feed_id = feed_id
        fields = _fields.decode(body)
        self._shows_ids = bytes(fields.get("return_token_ids", b"")) == b"true"
        self._item = _item(fields)
        fields.pop("store", None)
        fields["return_token_ids"] = msgspec.Raw(b"true")
        # The request as engines get it, which knows of no storing.
        self.body = msgspec.json.encode(fields)

    def shown(self, answer: bytes) -> bytes:
        """An engine's answer as the client sees it: without token ids that it did not ask for."""
        if self._shows_ids:
            return answer
        try:
            fields = _fields.decode(answer)
            choices = _choices.decode(fields.get("choices", b"[]"))
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return answer
        for one in (fields, *choices):
            for name in _IDS:
                one.pop(name, None)
        return msgspec.json.encode({**fields, "choices": choices})

    async def keep(self, answer: bytes) -> Headers:
        """Has an answer kept; returns the header that says how much of it is."""
        kept = 0
        try:
            if answers := _kept_answers(answer):
                kept = await self._tell(answers)
        except (msgspec.MsgspecError, UnicodeError, RecursionError, OverflowError, ValueError):
            log.warning("answer_without_token_ids", feed=self._feed_id)
        except grpc.aio.AioRpcError as error:
            log.warning("answer_not_kept", feed=self._feed_id, code=error.code().name)
        return [(KEPT.encode(), b"%d" % kept)]

    async def _tell(self, answers: list[pb.KeptAnswer]) -> int:
        caller = self._exchange.caller
        if len(self._item) > ITEM_BYTES:
            return 0
        request = pb.KeepAnswersRequest(
            feed_id=self._feed_id,
            project_id=caller.require_project(),
            key_id=caller.key_id,
            request_id=self._exchange.serial,
            item=self._item,
            answers=answers,
        )
        return (await self._feeds.KeepAnswers(request, timeout=KEEP_SECONDS)).kept


class Feeding:
    """Finds the feed of a request that consents."""

    def __init__(self, feeds: FeedsInternalServiceAsyncStub):
        self._feeds = feeds

    async def consent(
        self, exchange: HttpExchange, head: Head, body: bytes, *, images: bool
    ) -> Consent | None:
        """The consent of a request; None where it gives none, or no feed is there to take it.

        Raises HttpError for a request whose answer could not be kept as it is asked for.
        """
        if head.store is not True or exchange.path not in (CHAT, COMPLETIONS):
            return None
        feed_id = await self._find(exchange.caller, head.model)
        if not feed_id:
            return None
        if head.stream:
            raise _refusal("stream", "An answer that is stored cannot be streamed.")
        if images:
            raise _refusal("messages", "A request with images cannot be stored.")
        return Consent(self._feeds, exchange, feed_id, body)

    async def _find(self, caller: Principal, model: str) -> str:
        request = pb.FindFeedRequest(
            project_id=caller.require_project(), key_id=caller.key_id, model=model
        )
        try:
            return (await self._feeds.FindFeed(request, timeout=KEEP_SECONDS)).feed_id
        except grpc.aio.AioRpcError as error:
            # A service of the release before has no feeds.
            if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                return ""
            raise


def _refusal(param: str, message: str) -> HttpError:
    return HttpError(
        400, f"{message} Leave store or {param} out.", code="unsupported_parameter", param=param
    )


def _item(fields: dict[str, msgspec.Raw]) -> bytes:
    """Fields of a request that a grader sees as `item`: messages or a prompt, and metadata."""
    seen = {name: fields[name] for name in ("messages", "prompt", "metadata") if name in fields}
    return msgspec.json.encode(seen)


def _kept_answers(body: bytes) -> list[pb.KeptAnswer]:
    """The answers of a body that can be learned from."""
    answer = _answer.decode(body)
    return [
        pb.KeptAnswer(
            text=text,
            sample=TrainingSample(
                context_ids=one.prompt_token_ids or answer.prompt_token_ids or (),
                continuation_ids=one.token_ids or (),
            ),
        )
        for one in answer.choices
        for text in _texts(one)
    ]


def _texts(choice: _FedChoice) -> Iterable[str]:
    """The text of a choice that ended by itself or by its length, and has one."""
    text: Any = choice.message.content if choice.message is not None else choice.text
    if choice.finish_reason in _WHOLE and text:
        yield text
