"""Requests of the SDK: bodies read to a bound, unpacked to a bound, and decoded to their types."""

from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import parse_qsl

import msgspec
import orjson
import zstandard
from google.protobuf.message import DecodeError

from windlass.api.tinker.v1 import tinker_pb2 as wire
from windlass.core.rpc.auth import Principal
from windlass.gateway.asgi import read_body
from windlass.gateway.exchange import HttpExchange
from windlass.gateway.tinker.errors import TinkerError

PROTOBUF = "application/x-protobuf"
# Of a body once it is unpacked: with the rest of a message it fits what services take.
UNPACKED_BYTES = 12 * 2**20
_STEP_BYTES = 256 * 1024

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TinkerRequest:
    """One request: who asks, what its path names, its query and its unpacked body."""

    caller: Principal
    names: dict[str, str]
    query: dict[str, str]
    content_type: str
    body: bytes
    # The client reads results in binary.
    takes_protobuf: bool
    exchange: HttpExchange

    def decoded(self, kind: type[T]) -> T:
        """The JSON body as a type; raises TinkerError 400."""
        if b"\\u0000" in self.body or b"\0" in self.body:
            raise _bad("The request contains a NUL character.")
        try:
            return msgspec.json.decode(self.body or b"{}", type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise _bad(f"The body is not valid: {error}") from error

    def number(self, name: str, default: int) -> int:
        """A number of the query; raises TinkerError 400."""
        text = self.query.get(name, str(default))
        if not text.isascii() or not text.isdigit() or len(text) > 9:
            raise _bad(f"{name} must be a number.")
        return int(text)

    @property
    def is_protobuf(self) -> bool:
        """Returns True for a body in binary."""
        return self.content_type == PROTOBUF

    def read_computation(self, into: wire.ForwardBackwardRequest) -> None:
        """Reads the binary body of a computation into a message; raises TinkerError 400."""
        try:
            into.MergeFromString(self.body)
        except DecodeError as error:
            raise _bad("The body is not a ForwardBackwardRequest.") from error


async def read_request(exchange: HttpExchange, names: dict[str, str], limit: int) -> TinkerRequest:
    """Reads a request; raises TinkerError 400, 413 and 415."""
    headers = exchange.headers
    query = exchange.scope["query_string"].decode("latin-1")
    if any("\0" in one for one in names.values()) or "%00" in query:
        raise _bad("The request contains a NUL character.")
    body = b""
    if exchange.method in ("POST", "PUT"):
        body = await read_body(exchange.receive, headers, limit)
    kind = headers.get(b"content-type", b"").decode("latin-1").partition(";")[0].strip().lower()
    if body and kind not in (PROTOBUF, "application/json", ""):
        raise TinkerError(415, "The body must be JSON or protobuf.", code="unsupported_media_type")
    encoding = headers.get(b"content-encoding", b"").strip().lower()
    if encoding == b"zstd":
        body = unpacked(body)
    elif encoding not in (b"", b"identity"):
        raise TinkerError(415, "The body may be packed by zstd alone.", code="unsupported_encoding")
    accept = headers.get(b"accept", b"").decode("latin-1").lower()
    return TinkerRequest(
        caller=exchange.caller,
        names=names,
        query=dict(parse_qsl(query, keep_blank_values=True)),
        content_type=kind,
        body=body,
        takes_protobuf=PROTOBUF in accept,
        exchange=exchange,
    )


def unpacked(body: bytes) -> bytes:
    """Unpacks one zstd frame; raises TinkerError 400, and 413 as soon as it is too large."""
    decompressor = zstandard.ZstdDecompressor(max_window_size=2**23).decompressobj()
    pieces, size = [], 0
    try:
        for start in range(0, len(body), _STEP_BYTES // 64):
            if decompressor.eof:
                raise _bad("The body has more than one zstd frame.")
            piece = decompressor.decompress(body[start : start + _STEP_BYTES // 64])
            size += len(piece)
            if size > UNPACKED_BYTES:
                raise TinkerError(
                    413, f"The body exceeds {UNPACKED_BYTES} bytes.", code="request_too_large"
                )
            pieces.append(piece)
    except zstandard.ZstdError as error:
        raise _bad("The body is not zstd.") from error
    if not decompressor.eof or decompressor.unused_data:
        raise _bad("The body is not one whole zstd frame.")
    return b"".join(pieces)


def int32(number: int, name: str) -> int:
    """A number from 0 that a message takes; raises TinkerError 400."""
    if not 0 <= number < 2**31:
        raise TinkerError(400, f"{name} is out of range.", code="invalid_value", param=name)
    return number


def metadata_text(metadata: dict[str, Any] | None) -> str:
    """User metadata as the service takes it; raises TinkerError 400."""
    return json_text(metadata, "user_metadata") if metadata else ""


def json_text(value: Any, name: str) -> str:
    """A value that came as JSON, as JSON again; raises TinkerError 400 where no reader takes it."""
    try:
        return orjson.dumps(value).decode()
    except orjson.JSONEncodeError as error:
        # Nested too deep, or a number of more than 64 bits.
        raise TinkerError(
            400, f"{name} is not valid: {error}.", code="invalid_value", param=name
        ) from error


def _bad(message: str) -> TinkerError:
    return TinkerError(400, message, code="invalid_value")
