"""Chunks by hand are protobuf's chunks."""

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from windlass.api.sessions.v1.sessions_pb2 import Chunk, KubernetesTarget, Target
from windlass.tunnel.chunks import decode, encode

SIZES = st.sampled_from([1, 127, 128, 129, 16_383, 16_384, 70_000, 2_100_000])


@given(st.one_of(st.binary(min_size=1, max_size=300), SIZES.map(lambda size: b"x" * size)))
def test_data_is_what_protobuf_makes_of_it(data: bytes) -> None:
    made = Chunk(data=data).SerializeToString()
    assert encode(data) == encode(memoryview(data)) == encode(bytearray(data)) == made
    assert decode(made) == data


CHUNKS = st.builds(
    Chunk,
    connection_id=st.text(max_size=5),
    data=st.binary(max_size=5),
    cluster_id=st.text(max_size=5),
    target=st.none() | st.builds(Target, workload_id=st.text(max_size=3)),
    error=st.text(max_size=5),
    relayed=st.booleans(),
)


@given(CHUNKS)
def test_whatever_else_is_said_is_a_chunk(chunk: Chunk) -> None:
    raw = encode(chunk)
    assert raw == chunk.SerializeToString()
    found = decode(raw)
    if isinstance(found, bytes):
        found = Chunk(data=found)
    assert found == chunk


@given(st.binary(max_size=40) | st.binary(max_size=8).map(lambda tail: b"\x12" + tail))
def test_what_is_read_is_what_protobuf_reads(raw: bytes) -> None:
    try:
        expected = Chunk.FromString(raw)
    except DecodeError:
        with pytest.raises(DecodeError):
            decode(raw)
        return
    found = decode(raw)
    assert (Chunk(data=found) if isinstance(found, bytes) else found) == expected


def test_a_target_is_kept() -> None:
    chunk = Chunk(connection_id="c", target=Target(kubernetes=KubernetesTarget(namespace="n")))
    assert decode(encode(chunk)) == chunk
