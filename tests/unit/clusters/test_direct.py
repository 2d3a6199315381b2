"""A machine's door is told to gateways only at an address that the operator has pinned."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.clusters.domain.policy import OperatorPolicy, granted, is_direct, warnings

POLICY = OperatorPolicy(addresses=("gpu-1.example", "10.0.0.7:8444", "[fd00::7]"))


def told(address: str, digest: bytes = b"x" * 32) -> pb.DirectEndpoint:
    return pb.DirectEndpoint(address=address, certificate_digest=digest)


@pytest.mark.parametrize("address", ["gpu-1.example:8444", "10.0.0.7:8444", "[fd00::7]:9"])
def test_what_is_pinned_is_told(address: str) -> None:
    assert is_direct(POLICY, told(address))
    assert not is_direct(OperatorPolicy(), told(address))
    for digest in (b"", b"x" * 31, b"x" * 33):
        assert not is_direct(POLICY, told(address, digest))


@pytest.mark.parametrize(
    "address",
    [
        "", "gpu-1.example", "10.0.0.7:8445", "10.0.0.8:8444", "gpu-1.example:0",
        "gpu-1.example:65536", "gpu-1.example:8444/path", "user@gpu-1.example:8444",
        "https://gpu-1.example:8444", "gpu-1.example:8444\n", "gpu-1.example:-1",
        "gpu-1.example:8444:8444", "[fd00::8]:9", "unix:///run/s",
    ],
)  # fmt: skip
def test_nothing_else_is(address: str) -> None:
    assert not is_direct(POLICY, told(address))


def test_a_door_elsewhere_does_not_count_and_is_told_to_the_operator() -> None:
    pinned, other = (pb.Capacity(direct=told(one)) for one in ("10.0.0.7:8444", "10.0.0.8:8444"))
    assert granted(POLICY, pinned).direct == pinned.direct
    assert not warnings(POLICY, "", pinned)
    assert not granted(POLICY, other).HasField("direct")
    (warning,) = warnings(POLICY, "", other)
    assert "reached at 10.0.0.8:8444, which is no address of the cluster's" in warning
    assert "\n" not in warnings(POLICY, "", pb.Capacity(direct=told("a\nb")))[0]


@given(st.text(max_size=40), st.binary(max_size=40))
def test_no_text_is_an_error(address: str, digest: bytes) -> None:
    is_direct(POLICY, told(address, digest))
