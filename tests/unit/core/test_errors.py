import grpc
import pytest
from grpc.aio import AioRpcError, Metadata

from windlass.core import errors
from windlass.core.errors import AppError, from_rpc, to_metadata

FAMILY = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, AppError) and kind is not AppError
]


@pytest.mark.parametrize("kind", FAMILY)
def test_an_error_survives_the_wire(kind: type[AppError]) -> None:
    raised = kind("what went wrong", reason="a_reason", param="field")
    trailing = Metadata(*to_metadata(raised))
    arrived = from_rpc(AioRpcError(raised.code, Metadata(), trailing, raised.message))
    assert type(arrived) is kind
    assert (arrived.message, arrived.reason, arrived.param) == (
        "what went wrong",
        "a_reason",
        "field",
    )


def test_every_code_of_the_catalogue_is_its_own() -> None:
    codes = [kind.code for kind in FAMILY]
    assert len(set(codes)) == len(codes)
    reasons = [kind.default_reason for kind in FAMILY]
    assert len(set(reasons)) == len(reasons)


def test_a_transport_failure_is_unavailable() -> None:
    error = AioRpcError(grpc.StatusCode.UNAVAILABLE, Metadata(), Metadata(), "connection refused")
    assert from_rpc(error).reason == "service_unavailable"
