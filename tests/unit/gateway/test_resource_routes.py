"""Every route below /v1 refuses what it does not know, and answers as resources do."""

from unittest.mock import MagicMock

from fastapi.responses import StreamingResponse
from fastapi.routing import APIRoute
from tests.support.permissions.declared import routes_of

from windlass.gateway.parameters import known_query
from windlass.gateway.resource_router import JsonResponse
from windlass.gateway.rest import make_api

# Answers of bytes.
STREAMS = {"export_content", "file_content", "follow_engine_training", "read_log"}


def test_every_resource_has_its_prefix_its_check_and_its_answer() -> None:
    api = make_api(MagicMock(), MagicMock(), MagicMock())
    found = [route for route in routes_of(api.routes) if route.include_in_schema]
    assert len(found) > 200
    for route in found:
        assert isinstance(route, APIRoute)
        assert route.path.startswith("/v1/"), route.path
        checks = [one.call for one in route.dependant.dependencies]
        assert checks.count(known_query) == 1, route.path
        answer = StreamingResponse if route.name in STREAMS else JsonResponse
        assert route.response_class is answer, route.path
        assert route.unique_id == route.name


def test_no_route_below_v1_is_hidden_from_the_reference() -> None:
    api = make_api(MagicMock(), MagicMock(), MagicMock())
    hidden = {route.path for route in routes_of(api.routes) if not route.include_in_schema}
    assert not {path for path in hidden if path.startswith("/v1")}
