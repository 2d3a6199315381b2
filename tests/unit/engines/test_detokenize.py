from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from windlass_agent.engines.builtin.text.detokenize import Detokenizer, StopFilter


def _decode(ids: Sequence[int]) -> str:
    """Each id is a byte, as in a byte-level vocabulary without merges."""
    return bytes(ids).decode(errors="replace")


@given(st.text())
def test_whole_characters_only_and_all_of_them(text: str) -> None:
    detokenizer = Detokenizer(_decode)
    pieces = [detokenizer.push(byte) for byte in text.encode()]
    assert "".join(pieces) == text.rstrip("\ufffd")
    assert [piece for piece in pieces if "\ufffd" in piece and "\ufffd" not in text] == []


@given(st.lists(st.integers(0, 255), max_size=200))
def test_any_bytes_come_out_as_they_decode(ids: list[int]) -> None:
    detokenizer = Detokenizer(_decode)
    text = "".join([detokenizer.push(byte) for byte in ids])
    assert text.rstrip("\ufffd") == _decode(ids).rstrip("\ufffd")


@given(
    st.text("abc", max_size=40),
    st.lists(st.text("abc", min_size=1, max_size=4), max_size=4),
    st.integers(1, 5),
)
def test_text_ends_at_the_first_stop_however_it_is_cut(
    text: str, stops: list[str], size: int
) -> None:
    one = StopFilter(stops)
    shown = ""
    for start in range(0, len(text), size):
        shown += one.push(text[start : start + size])
        if one.stopped:
            break
        assert not any(stop in shown for stop in stops)
    shown += one.flush()
    # The first stop to be complete decides, and pieces may complete several at once.
    ends = [text.find(stop) for stop in stops if stop in text]
    assert one.stopped == bool(ends)
    if size == 1 and ends:
        end = min(text.find(stop) + len(stop) for stop in stops if stop in text)
        assert shown == text[: min(text[:end].find(s) for s in stops if s in text[:end])]
    if not ends:
        assert shown == text
