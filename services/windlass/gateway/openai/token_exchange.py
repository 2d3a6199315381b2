"""`POST /v1/oauth/token`: tokens of workloads for tokens of service accounts, for whoever asks.

OpenAI's clients send JSON, and RFC 8693 asks for a form; both are taken. All refusals of what was
shown are one answer, no sooner than after a while, so that nobody learns what there is.
"""

import asyncio
import math
import re
import time
from http import HTTPStatus
from urllib.parse import parse_qsl

import grpc
import orjson

from windlass.api.users.v1 import workload_identity_pb2 as pb
from windlass.api.users.v1 import workload_identity_pb2_grpc as rpc
from windlass.core.addresses import ClientAddresses
from windlass.core.errors import from_rpc
from windlass.core.throttle import Throttle
from windlass.gateway.asgi import JSON, Headers, read_body, respond
from windlass.gateway.errors import HttpError, method_not_allowed
from windlass.gateway.exchange import HttpExchange

PATH = "/v1/oauth/token"
GRANT = "urn:ietf:params:oauth:grant-type:token-exchange"
ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token"  # noqa: S105
SUBJECT_TYPES = frozenset(
    f"urn:ietf:params:oauth:token-type:{name}" for name in ("jwt", "id_token")
)
BODY_BYTES, BODY_SECONDS = 32 * 1024, 10.0
# Longer than a look-up and the check of a signature take.
REFUSAL_SECONDS = 0.3
# At once, and in line for it.
EXCHANGES, IN_LINE = 32, 256
# Of addresses that have to wait.
FEW, FEW_IN_LINE = 4, 64
# An issuer may be asked twice for two documents.
RPC_SECONDS = 25.0
_REQUIRED = ("grant_type", "subject_token", "subject_token_type", "identity_provider_id",
             "service_account_id")  # fmt: skip
_NAME = re.compile(r"[!-~]{1,256}")
_NOT_STORED: Headers = [(b"cache-control", b"no-store"), (b"pragma", b"no-cache")]


class OAuthRefusal(Exception):
    """An answer of RFC 6749, section 5.2."""

    def __init__(self, status: int, code: str, description: str, retry_after: float = 0.0):
        super().__init__(description)
        self.status = status
        self.retry_after = retry_after
        self.body = orjson.dumps({"error": code, "error_description": description})


class TokenExchanges:
    """Answers requests for a token; addresses that are refused again and again must wait."""

    def __init__(
        self,
        exchange: rpc.TokenExchangeServiceAsyncStub,
        addresses: ClientAddresses,
        *,
        allowance: int,
    ):
        self._exchange = exchange
        self._addresses = addresses
        self._throttle = Throttle(allowance=allowance)
        self._turns = asyncio.Semaphore(EXCHANGES)
        self._few = asyncio.Semaphore(FEW)
        self._in_line = 0

    async def handle(self, exchange: HttpExchange) -> None:
        """Answers one request."""
        if exchange.method != "POST":
            raise method_not_allowed(exchange.method, exchange.path, "POST")
        try:
            body = orjson.dumps(await self._answer(exchange))
            status, headers = HTTPStatus.OK, [JSON, *_NOT_STORED]
        except OAuthRefusal as error:
            body, status, headers = error.body, HTTPStatus(error.status), [JSON, *_NOT_STORED]
            if error.retry_after:
                headers.append((b"retry-after", b"%d" % math.ceil(error.retry_after)))
        await respond(exchange.send, status, headers, body)

    async def _answer(self, exchange: HttpExchange) -> dict[str, object]:
        try:
            async with asyncio.timeout(BODY_SECONDS):
                body = await read_body(exchange.receive, exchange.headers, BODY_BYTES)
        except TimeoutError as error:
            raise OAuthRefusal(408, "invalid_request", "The body did not come.") from error
        asked = _request(exchange.headers.get(b"content-type", b""), body)
        client = self._addresses.client(exchange.peer, exchange.headers)
        asked.client_address = str(client or exchange.peer)
        address = self._addresses.of(exchange.peer, exchange.headers)
        waiting = self._throttle.wait(address)
        # A good one of an address that has to wait gets through, among few.
        turns, most = (self._few, FEW_IN_LINE) if waiting else (self._turns, IN_LINE)
        if self._in_line >= most:
            raise _too_many(waiting or 1.0)
        started = time.monotonic()
        self._in_line += 1
        try:
            async with turns:
                given = await self._exchange.ExchangeToken(asked, timeout=RPC_SECONDS)
        except grpc.aio.AioRpcError as error:
            if from_rpc(error).reason != "token_not_exchanged":
                raise
            await asyncio.sleep(max(0.0, started + REFUSAL_SECONDS - time.monotonic()))
            if waiting := self._throttle.fail(address):
                raise _too_many(waiting) from error
            raise OAuthRefusal(400, "invalid_grant", error.details() or "") from error
        finally:
            self._in_line -= 1
        return {
            "access_token": given.access_token,
            "issued_token_type": ACCESS_TOKEN,
            "token_type": "Bearer",
            "expires_in": given.expires_in,
        }


def _too_many(seconds: float) -> OAuthRefusal:
    return OAuthRefusal(
        429, "slow_down", "Too many tokens were refused from this address.", seconds
    )


def _request(content_type: bytes, body: bytes) -> pb.ExchangeTokenRequest:
    """The request of a body; raises OAuthRefusal for one that is not of this form."""
    kind = content_type.partition(b";")[0].strip().lower()
    try:
        if kind == b"application/json":
            fields = orjson.loads(body)
        elif kind == b"application/x-www-form-urlencoded":
            pairs = parse_qsl(
                body.decode("ascii"), keep_blank_values=True, max_num_fields=16, errors="strict"
            )
            fields = dict(pairs)
            if len(fields) < len(pairs):
                raise ValueError("a parameter is there twice")
        else:
            raise HttpError(415, "Send JSON, or application/x-www-form-urlencoded.")
    except ValueError as error:
        raise OAuthRefusal(400, "invalid_request", "The body cannot be read.") from error
    return _checked(fields)


def _checked(fields: object) -> pb.ExchangeTokenRequest:
    if not isinstance(fields, dict) or not all(isinstance(one, str) for one in fields.values()):
        raise OAuthRefusal(400, "invalid_request", "All parameters must be texts.")
    if fields.pop("requested_token_type", ACCESS_TOKEN) != ACCESS_TOKEN:
        raise OAuthRefusal(400, "invalid_request", f"requested_token_type must be {ACCESS_TOKEN}.")
    for name in _REQUIRED:
        if not fields.get(name):
            raise OAuthRefusal(400, "invalid_request", f"{name} is missing.")
        if name != "subject_token" and not _NAME.fullmatch(fields[name]):
            raise OAuthRefusal(400, "invalid_request", f"{name} is not a name.")
    if unknown := sorted(fields.keys() - set(_REQUIRED)):
        raise OAuthRefusal(400, "invalid_request", f"{unknown[0][:64]} is not supported.")
    if fields["grant_type"] != GRANT:
        raise OAuthRefusal(400, "unsupported_grant_type", f"grant_type must be {GRANT}.")
    if fields["subject_token_type"] not in SUBJECT_TYPES:
        kinds = " or ".join(sorted(SUBJECT_TYPES))
        raise OAuthRefusal(400, "invalid_request", f"subject_token_type must be {kinds}.")
    try:
        return pb.ExchangeTokenRequest(
            identity_provider_id=fields["identity_provider_id"],
            service_account_id=fields["service_account_id"],
            subject_token=fields["subject_token"],
        )
    except ValueError as error:
        raise OAuthRefusal(400, "invalid_request", "All parameters must be texts.") from error
