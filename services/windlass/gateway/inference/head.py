"""Fields that the gateway reads of an inference request, and those that it writes."""

import hmac
from typing import Any

import msgspec

from windlass.core.errors import InvalidArgument
from windlass.inference_api.requests import refused

# Of an answer whose length the request does not bound, for the token limit alone.
ASSUMED_TOKENS = 256
BYTES_PER_TOKEN = 4
# Of requests in an engine that serves by priority: lower comes first.
PRIORITY = 0


class Head(msgspec.Struct):
    """The fields that decide about routing, limits and accounting."""

    model: str = ""
    stream: bool | None = None
    stream_options: dict[str, Any] | None = None
    max_tokens: Any = None
    max_completion_tokens: Any = None
    n: Any = None

    def estimate(self, body_bytes: int) -> int:
        """Tokens that the request may use, for reservation."""
        asked = self.max_completion_tokens or self.max_tokens
        each = asked if isinstance(asked, int) and asked > 0 else ASSUMED_TOKENS
        choices = self.n if isinstance(self.n, int) and 0 < self.n <= 128 else 1
        return int(body_bytes // BYTES_PER_TOKEN + each * choices)

    @property
    def most_tokens(self) -> int | None:
        """Tokens that the answer may have, all its choices together; None for no bound."""
        asked = self.max_completion_tokens or self.max_tokens
        if not isinstance(asked, int) or asked <= 0:
            return None
        return asked * max(self.n, 1) if isinstance(self.n, int) else asked

    @property
    def wants_usage(self) -> bool:
        """True if the client asked for a last chunk with usage."""
        return (self.stream_options or {}).get("include_usage") is True

    @property
    def wants_every_usage(self) -> bool:
        """True if the client asked for usage in every chunk, as vLLM offers."""
        options = self.stream_options or {}
        return self.wants_usage and options.get("continuous_usage_stats") is True


_head = msgspec.json.Decoder(Head)
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])


def read_head(body: bytes) -> Head:
    """The head of a body; raises InvalidArgument that names the field."""
    try:
        head = _head.decode(body)
    except msgspec.ValidationError as error:
        said = refused(error, Head)
        raise InvalidArgument(said.message, param=said.param, reason=said.code or "") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidArgument(
            "We could not parse the JSON body of your request.", reason="invalid_json"
        ) from error
    if not head.model:
        raise InvalidArgument(
            "You must provide a model.", reason="missing_required_parameter", param="model"
        )
    return head


def for_engine(body: bytes, head: Head, *, usage: bool, salt: str) -> bytes:
    """The request as an engine gets it; values that are not ours keep their bytes.

    With `usage` it asks for usage in every chunk. With a salt it shares cached prompts with those
    of the same salt alone.
    """
    if not usage and not salt:
        return body
    fields = _fields.decode(body)
    if usage:
        options = {
            **(head.stream_options or {}),
            "include_usage": True,
            "continuous_usage_stats": True,
        }
        fields["stream_options"] = msgspec.Raw(msgspec.json.encode(options))
    if salt:
        fields["cache_salt"] = msgspec.Raw(msgspec.json.encode(salt))
        fields["priority"] = msgspec.Raw(msgspec.json.encode(PRIORITY))
    return msgspec.json.encode(fields)


class CacheSalts:
    """Salts of organizations: those of all gateways agree, and no tenant can tell one (ADR 36)."""

    def __init__(self, key: bytes):
        self._key = key

    def of(self, organization_id: str) -> str:
        """The salt of an organization: 64 characters that every engine accepts."""
        return hmac.digest(self._key, organization_id.encode(), "sha256").hex()
