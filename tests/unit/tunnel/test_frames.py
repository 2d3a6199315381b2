"""Frames by hand are protobuf's frames."""

from hypothesis import given
from hypothesis import strategies as st

from windlass.api.sessions.v1.sessions_pb2 import Chunk, Frame, Frames
from windlass.tunnel.frames import DRAIN, encode_data, encode_frame

STREAMS = st.integers(1, 300) | st.integers(1, 2**64 - 1)
DATA = st.binary(max_size=300) | st.sampled_from([127, 128, 16_384, 70_000]).map(bytes)


@given(st.lists(st.tuples(STREAMS, DATA), max_size=5))
def test_data_is_what_protobuf_makes_of_it(written: list[tuple[int, bytes]]) -> None:
    parts = [part for stream, data in written for part in encode_data(stream, data)]
    made = Frames(frames=[Frame(stream=stream, data=data) for stream, data in written])
    assert b"".join(parts) == made.SerializeToString()


def test_frames_of_every_kind_join() -> None:
    frames = [
        Frame(stream=1, chunk=Chunk(connection_id="c")), Frame(stream=1, taken=2),
        Frame(stream=1, over=""),
    ]  # fmt: skip
    parts = [part for frame in frames for part in encode_frame(frame)]
    assert Frames.FromString(b"".join([DRAIN, *parts])) == Frames(frames=frames, drain=True)
