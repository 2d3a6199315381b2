"""Fields that the gateway reads of an inference request, and those that it writes."""

import hashlib
import hmac
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import msgspec

from windlass.core.errors import InvalidArgument
from windlass.gateway.errors import HttpError
from windlass.inference_api.errors import ApiError, no_images
from windlass.inference_api.images.bounds import ASSUMED_IMAGE_TOKENS
from windlass.inference_api.images.parts import ImagePlace
from windlass.inference_api.kinds import body_check
from windlass.inference_api.requests import refused

# Of an answer whose length the request does not bound, for the token limit alone.
ASSUMED_TOKENS = 256
BYTES_PER_TOKEN = 4
# Of a prompt that tells one conversation from another.
_MOST_BYTES = 16_384
_MOST_MESSAGES = 8
# Of requests in an engine that serves by priority: lower comes first.
PRIORITY, BACKGROUND_PRIORITY = 0, 10
# OpenAI's name of a request that may take its time.
_FLEX = "flex"
# Of organizations that asked last.
_SALTS = 4096


# Special tokens of a pair of texts, at most.
_MARKS = 8


class Head(msgspec.Struct):
    """The fields that decide about routing, limits and accounting."""

    model: str = ""
    stream: bool | None = None
    stream_options: dict[str, Any] | None = None
    max_tokens: Any = None
    max_completion_tokens: Any = None
    n: Any = None
    ignore_eos: Any = None
    min_tokens: Any = None
    allowed_token_ids: Any = None
    logit_bias: Any = None
    skip_special_tokens: Any = None
    prompt_cache_key: Any = None
    service_tier: Any = None
    store: Any = None
    messages: msgspec.Raw = msgspec.Raw(b"")
    prompt: msgspec.Raw = msgspec.Raw(b"")
    # Of a rerank.
    query: msgspec.Raw = msgspec.Raw(b"")
    documents: msgspec.Raw = msgspec.Raw(b"")

    def estimate(self, body_bytes: int, images: int = 0) -> int:
        """Tokens that the request may use, for reservation; `body_bytes` are without its images."""
        choices = self.choices if self.choices <= 128 else 1
        each = self._asked or ASSUMED_TOKENS
        read = body_bytes + self.query_bytes
        seen = images * ASSUMED_IMAGE_TOKENS
        return int(read // BYTES_PER_TOKEN + each * choices) + seen

    @property
    def query_bytes(self) -> int:
        """Bytes that are read beyond those of the body: of the query, once for each document."""
        return (len(self.query) + _MARKS) * _count(self.documents) if self.query else 0

    @property
    def choices(self) -> int:
        """The number of answers to each prompt."""
        return _positive(self.n) or 1

    @property
    def most_tokens(self) -> int | None:
        """Tokens that the answer may have, all its choices together; None for no bound."""
        return self._asked * self.choices if self._asked else None

    @property
    def hides_tokens(self) -> bool:
        """True if the answer may have tokens without text, such as marks of its end."""
        steering = (self.ignore_eos, self.min_tokens, self.allowed_token_ids, self.logit_bias)
        return any(steering) or self.skip_special_tokens is not None

    @property
    def _asked(self) -> int:
        return _positive(self.max_completion_tokens) or _positive(self.max_tokens)

    @property
    def may_wait(self) -> bool:
        """True if the client lets others go before it where engines are busy."""
        return bool(self.service_tier == _FLEX)

    @property
    def wants_usage(self) -> bool:
        """True if the client asked for a last chunk with usage."""
        return (self.stream_options or {}).get("include_usage") is True

    @property
    def wants_every_usage(self) -> bool:
        """True if the client asked for usage in every chunk, as vLLM offers."""
        options = self.stream_options or {}
        return self.wants_usage and options.get("continuous_usage_stats") is True

    def conversation(self, organization_id: str, session: bytes = b"") -> int:
        """A number that requests have in common whose prompts begin alike; 0 for none.

        That is by the caller's own `prompt_cache_key`, else by the `session` of its header, else
        by the messages up to the first of a user, which every later turn repeats, else by the
        beginning of the prompt.
        """
        if isinstance(self.prompt_cache_key, str) and self.prompt_cache_key:
            beginning = self.prompt_cache_key.encode()
        elif session:
            beginning = session
        elif self.messages:
            beginning = _beginning(bytes(self.messages))
        else:
            beginning = bytes(self.prompt)
        if not beginning:
            return 0
        said = b"\0".join((organization_id.encode(), self.model.encode(), beginning[:_MOST_BYTES]))
        return int.from_bytes(hashlib.blake2b(said, digest_size=7).digest())


def _beginning(messages: bytes) -> bytes:
    """The messages up to the first of a user; empty for what are no messages."""
    found = []
    try:
        for message in _messages.decode(messages)[:_MOST_MESSAGES]:
            found.append(bytes(message))
            if _turn.decode(message).role == "user":
                break
    except (msgspec.DecodeError, RecursionError):
        return b""
    return b"\0".join(found)


def _count(values: msgspec.Raw) -> int:
    """The number of values in a list; 0 for what is none."""
    try:
        return len(_messages.decode(values)) if values else 0
    except (msgspec.DecodeError, RecursionError):
        return 0


def _positive(value: object) -> int:
    """A number of things, also where it is written `16.0`; 0 for anything else."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and value > 0 else 0


class _Turn(msgspec.Struct):
    role: Any = None


_head = msgspec.json.Decoder(Head)
_messages = msgspec.json.Decoder(list[msgspec.Raw])
_turn = msgspec.json.Decoder(_Turn)
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


def renamed(body: bytes, model: str) -> bytes:
    """The body as a request for another model; all other values keep their bytes."""
    return msgspec.json.encode(
        {**_fields.decode(body), "model": msgspec.Raw(msgspec.json.encode(model))}
    )


def for_engine(
    body: bytes, head: Head, *, usage: bool, salt: str, background: bool = False
) -> bytes:
    """The request as an engine gets it; values that are not ours keep their bytes.

    With `usage` it asks for usage in every chunk. With a salt it shares cached prompts with those
    of the same salt alone, and says whether it comes after others.
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
        fields["priority"] = msgspec.Raw(
            msgspec.json.encode(BACKGROUND_PRIORITY if background else PRIORITY)
        )
    return msgspec.json.encode(fields)


class BodyJudge:
    """Refuses a body that engines of a kind must not get; checks it once for each kind."""

    __slots__ = ("_model", "_passed", "_path", "body", "check", "images")

    def __init__(self, path: str, body: bytes, model: str = "", images: Sequence[ImagePlace] = ()):
        self._path = path
        self._model = model
        self._passed = ""
        self.body = body
        # Those that are in it.
        self.images = images
        # Of the kind that was asked for last.
        self.check = body_check("")

    def __call__(self, kind: str, *, runs: bool) -> None:
        """Raises HttpError for what engines of the kind must not get."""
        check = self.check = body_check(kind)
        if self.images and not check.images:
            raise self.no_images()
        if kind == self._passed or (runs and check.repeated):
            return
        try:
            check.refuse(self._path, self.body)
        except ApiError as error:
            raise HttpError(
                error.status, error.message, code=error.code, param=error.param
            ) from None
        self._passed = kind

    def no_images(self) -> HttpError:
        """The refusal of the images to a model that reads none."""
        error = no_images(self._model, str(self.images[0]))
        return HttpError(error.status, error.message, code=error.code, param=error.param)


class CacheSalts:
    """Salts of organizations: those of all gateways agree, and no tenant can tell one (ADR 36)."""

    def __init__(self, key: bytes):
        self._key = key
        self._salt = lru_cache(maxsize=_SALTS)(self._compute)

    def of(self, organization_id: str) -> str:
        """The salt of an organization: 64 characters that every engine accepts."""
        return self._salt(organization_id)

    def _compute(self, organization_id: str) -> str:
        return hmac.digest(self._key, organization_id.encode(), "sha256").hex()
