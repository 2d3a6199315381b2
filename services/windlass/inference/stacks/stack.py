"""A serving stack that somebody else runs, as an operator describes it; pure."""

import re
import ssl
from dataclasses import dataclass
from urllib.parse import urlsplit

from windlass.bounds import (
    MAX_STACK_CONCURRENCY,
    MAX_STACK_CONTEXT,
    STACK_CA_BYTES,
    STACK_KEY_LENGTH,
    STACK_MODEL_LENGTH,
    STACK_URL_LENGTH,
)
from windlass.core.errors import InvalidArgument

OPENAI, VLLM = "openai", "vllm"
# The kind of engine that answers for a stack's models, by its dialect.
KINDS = {OPENAI: "adopted", VLLM: "adopted-vllm"}
# The word of an agent that reaches stacks, among those of its engines.
REACHES = "adopted"
NAME_RULE = "1 to 63 lower-case letters, digits and dashes, a letter first"
_NAME = re.compile(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?")
# What a header can carry (RFC 9110, 5.5), without blanks.
_KEY = re.compile(r"[!-~]*")
# Of an upstream's model: any text that a person can read.
_MODEL = re.compile(rf"[!-~]{{1,{STACK_MODEL_LENGTH}}}")


@dataclass(frozen=True, slots=True)
class Stack:
    """One stack; times are Unix seconds of the database's clock."""

    name: str
    cluster_id: str
    url: str
    dialect: str = OPENAI
    # PEM; empty for what the agent's system trusts.
    ca: str = ""
    # Of its key, for its cluster alone; empty where it needs none.
    sealed_key: bytes = b""
    max_concurrency: int = 0
    context_length: int = 0
    embeddings: bool = False
    rerank: bool = False
    score: bool = False
    created_at: float = 0.0
    updated_at: float = 0.0

    @property
    def kind(self) -> str:
        """The kind of engine that its models have."""
        return KINDS[self.dialect]


def require_same_place(former: Stack, new: Stack) -> None:
    """Raises InvalidArgument where a key that is kept would be told to somebody else."""
    if former.sealed_key and _place(former) != _place(new):
        raise InvalidArgument(
            f"{new.name} has a key, which is for {former.url} in its cluster alone; give the key "
            "for the new place, or an empty one.",
            param="key",
        )


def _place(stack: Stack) -> tuple[str, str, str]:
    """The party that a key is told: cluster, scheme, host and port."""
    parts = urlsplit(stack.url)
    return stack.cluster_id, parts.scheme, parts.netloc


def is_adopted(kind: str) -> bool:
    """Returns True for a kind of engine that stands for somebody else's stack."""
    return kind in KINDS.values()


def check_name(name: str) -> str:
    """The name of a stack; raises InvalidArgument."""
    if not _NAME.fullmatch(name):
        raise InvalidArgument(f"A stack's name must be {NAME_RULE}.", param="name")
    return name


def check_url(url: str) -> str:
    """The address of a stack, without a slash at its end; raises InvalidArgument."""
    try:
        parts = urlsplit(url)
        is_good = (
            parts.scheme in ("http", "https")
            and bool(parts.hostname)
            and parts.port != 0
            and not (parts.username or parts.password or parts.query or parts.fragment)
            # Raises UnicodeError, a ValueError, for labels that are empty or too long.
            and bool((parts.hostname or "").encode("idna"))
            and url.isascii()
            and url.isprintable()
            and " " not in url
        )
    except ValueError:
        is_good = False
    if not is_good or len(url) > STACK_URL_LENGTH:
        raise InvalidArgument(
            f"url must be http://HOST:PORT or https://HOST, with a path where the stack has one, "
            f"and at most {STACK_URL_LENGTH} characters; a key goes into key.",
            param="url",
        )
    return url.rstrip("/").removesuffix("/v1")


def check_dialect(dialect: str) -> str:
    """The dialect, OpenAI's where none is named; raises InvalidArgument."""
    if dialect and dialect not in KINDS:
        raise InvalidArgument(f"dialect must be one of {', '.join(KINDS)}.", param="dialect")
    return dialect or OPENAI


def check_score(score: bool, dialect: str) -> None:
    """Raises InvalidArgument where /v1/score would get what it does not know."""
    if score and dialect == VLLM:
        raise InvalidArgument(
            "score is not for the dialect 'vllm': vLLM's /v1/score compares pairs of texts, and "
            "ours rates a text or a conversation; use rerank.",
            param="score",
        )


def check_ca(ca: str) -> str:
    """The PEM of what certifies a stack; raises InvalidArgument."""
    try:
        if len(ca) <= STACK_CA_BYTES:
            if ca:
                ssl.create_default_context(cadata=ca)
            return ca
    except (ssl.SSLError, ValueError):
        pass
    raise InvalidArgument(
        f"ca must be certificates in PEM, at most {STACK_CA_BYTES} characters.", param="ca"
    )


def check_key(key: str) -> bytes:
    """The key of a stack; raises InvalidArgument."""
    if len(key) > STACK_KEY_LENGTH or not _KEY.fullmatch(key):
        raise InvalidArgument(
            f"key must be at most {STACK_KEY_LENGTH} characters that a header can carry, without "
            "blanks.",
            param="key",
        )
    return key.encode()


def check_bounds(max_concurrency: int, context_length: int) -> None:
    """Raises InvalidArgument for numbers that no stack has."""
    if not 0 <= max_concurrency <= MAX_STACK_CONCURRENCY:
        raise InvalidArgument(
            f"max_concurrency must be 0 to {MAX_STACK_CONCURRENCY}.", param="max_concurrency"
        )
    if not 0 <= context_length <= MAX_STACK_CONTEXT:
        raise InvalidArgument(
            f"context_length must be 0 to {MAX_STACK_CONTEXT}.", param="context_length"
        )


def check_model(model: str) -> str:
    """A stack's own name of a model; raises InvalidArgument."""
    if not _MODEL.fullmatch(model):
        raise InvalidArgument(
            f"model must be 1 to {STACK_MODEL_LENGTH} printable characters without blanks.",
            param="model",
        )
    return model
