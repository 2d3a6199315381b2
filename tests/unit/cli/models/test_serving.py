"""What `windlass models activate` sends: what is not named stays, as far as it still applies."""

from types import SimpleNamespace
from typing import Any

import pytest

from windlass.cli.framework.calling import Call
from windlass.cli.framework.context import Flags
from windlass.cli.framework.output import Output, OutputFormat
from windlass.cli.models.serving import activate

FOUND: dict[str, Any] = {
    "id": "ft:a", "model": "ft:a", "min_replicas": 1, "max_replicas": 3, "target_requests": 2,
    "engine": "", "arguments": {}, "dedicated": True, "ready_replicas": 1, "message": "",
}  # fmt: skip


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ({"replicas": 2}, {"min_replicas": 2, "max_replicas": 3, "dedicated": True}),
        ({"dedicated": False}, {"min_replicas": 1, "max_replicas": None, "dedicated": False}),
        ({"dedicated": True}, {"min_replicas": 1, "max_replicas": 3, "dedicated": True}),
    ],
)
def test_what_its_own_engines_had_ends_with_them(
    given: dict[str, Any], sent: dict[str, Any]
) -> None:
    bodies = list[dict[str, Any]]()

    def put(_: str, body: dict[str, Any]) -> dict[str, Any]:
        bodies.append(body)
        return FOUND

    call = Call(Flags(), Output(OutputFormat.NAME, quiet=True, color=False))
    object.__setattr__(call, "client", SimpleNamespace(get=lambda _: FOUND, put=put))
    activate(call, "ft:a", **given)
    (body,) = bodies
    assert {name: body.get(name) for name in sent} == sent
