"""Routes of resources below /v1, ready to be served as they are."""

from collections.abc import Sequence
from typing import Any

import orjson
from fastapi import APIRouter, Depends, Response
from fastapi.params import Depends as Dependency

from windlass.gateway.parameters import known_query


class JsonResponse(Response):
    """JSON by orjson."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """The body."""
        return orjson.dumps(content)


class ResourceRouter(APIRouter):
    """A router below /v1 whose routes refuse unknown parameters and answer by orjson.

    It has what `include_router` would give it. FastAPI builds each included route twice, which was
    half of a gateway's start; `app.router.routes.extend` takes these.
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
        )
