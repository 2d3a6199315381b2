"""Routes of resources below /v1, ready to be served as they are."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, cached_property, partial
from typing import Any, cast

import orjson
from fastapi import APIRouter, Depends, Response
from fastapi.params import Depends as Dependency
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute, Match, compile_path
from starlette.types import Receive, Scope, Send

from windlass.gateway.parameters import known_query

_compiled = cache(compile_path)


class JsonResponse(Response):
    """JSON by orjson."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """The body."""
        return orjson.dumps(content)


class DeferredRoute(BaseRoute):
    """A route of FastAPI that is built when somebody first asks for its path.

    There are hundreds, each with the schemas of its parameters, body and answer: to build them all
    was half of a gateway's start. A mistake in one shows when it is built, which the tests do.
    """

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any):
        self._pattern, *_ = _compiled(path)
        self._make = partial(APIRoute, path, endpoint, **options)

    @cached_property
    def built(self) -> APIRoute:
        """The route itself."""
        return self._make()

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Returns what the route itself says, which is what the scope names then."""
        # Nothing is mounted below another path, so the scope's is the route's.
        if scope["type"] != "http" or self._pattern.match(scope["path"]) is None:
            return Match.NONE, {}
        return self.built.matches(scope)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers."""
        await self.built.handle(scope, receive, send)


def built(routes: Iterable[BaseRoute]) -> Iterator[BaseRoute]:
    """Yields the routes themselves."""
    for route in routes:
        yield route.built if isinstance(route, DeferredRoute) else route


class ResourceRouter(APIRouter):
    """A router below /v1 whose routes refuse unknown parameters and answer by orjson.

    It has what `include_router` would give it, so that `app.router.routes.extend` takes its routes
    as they are.
    """

    def __init__(
        self, *, prefix: str = "", tags: list[str], dependencies: Sequence[Dependency] = ()
    ):
        super().__init__(
            prefix=f"/v1{prefix}",
            tags=list(tags),
            dependencies=[Depends(known_query), *dependencies],
            default_response_class=JsonResponse,
            generate_unique_id_function=lambda route: route.name,
            route_class=cast(type[APIRoute], DeferredRoute),
        )
