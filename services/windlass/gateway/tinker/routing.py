"""Routes: a method, a path with names in it, and what answers."""

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from windlass.gateway.tinker.errors import not_served
from windlass.gateway.tinker.requests import TinkerRequest


@dataclass(frozen=True, slots=True)
class Binary:
    """An answer in the SDK's protobuf."""

    content: bytes


@dataclass(frozen=True, slots=True)
class Redirect:
    """An answer that lies at a URL, until a moment in Unix seconds."""

    url: str
    expires_at: int


# JSON, binary, elsewhere, or nothing.
Answer = dict[str, Any] | Binary | Redirect | None
Handler = Callable[[TinkerRequest], Awaitable[Answer]]
_NAME = re.compile(r"\{(\w+)(:path)?\}")


CHECKPOINT = "training_runs/{run_id}/checkpoints/{checkpoint_id:path}"


@dataclass(frozen=True, slots=True)
class TinkerRoute:
    """One route, below the prefix."""

    method: str
    path: re.Pattern[str]
    answer: Handler
    # May take long, and is over once its client has left.
    is_long: bool = False


def route(method: str, path: str, answer: Handler, *, is_long: bool = False) -> TinkerRoute:
    """A route of a path such as `sessions/{id}`; `{id:path}` takes slashes too."""
    pattern = _NAME.sub(lambda found: f"(?P<{found[1]}>{'.+?' if found[2] else '[^/]+'})", path)
    return TinkerRoute(method, re.compile(pattern), answer, is_long)


def refused(method: str, path: str, name: str) -> TinkerRoute:
    """A route of what the SDK can ask and nothing here does."""

    async def refuse(_: TinkerRequest) -> Answer:
        raise not_served(name)

    return route(method, path, refuse)
