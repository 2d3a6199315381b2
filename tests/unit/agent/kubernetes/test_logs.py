"""A kubelet's stamped log, cut anywhere and read again: each byte once."""

from hypothesis import given
from hypothesis import strategies as st

from windlass_agent.executors.kubernetes.logs import KubeletLogParser

LINE = st.text(alphabet="ab \r.", max_size=8)


def stamped(lines: list[tuple[int, str]]) -> bytes:
    return b"".join(f"2026-11-21T10:00:00.{stamp:09d}Z {text}\n".encode() for stamp, text in lines)


@given(
    st.lists(st.tuples(st.integers(0, 3), LINE), max_size=12),
    st.lists(st.integers(0, 400), max_size=4),
    st.integers(0, 60),
    st.integers(1, 7),
)
def test_however_it_is_cut_each_byte_comes_once(
    steps: list[tuple[int, str]], cuts: list[int], stored: int, size: int
) -> None:
    now, lines = 0, []
    for step, text in steps:
        now += step
        lines.append((now, text))
    whole = stamped(lines)
    plain = "".join(f"{text}\n" for _, text in lines).encode()
    stored = min(stored, len(plain))
    reader, found = KubeletLogParser(stored), bytearray(plain[:stored])
    for cut in [*cuts, len(whole)]:
        # The kubelet begins at the newest stamp's second: here, with everything.
        part = whole[:cut]
        for start in range(0, len(part), size):
            found += reader.feed(part[start : start + size])
        reader.resume()
    assert bytes(found) == plain


def test_a_line_left_open_is_closed_for_what_comes_after() -> None:
    reader = KubeletLogParser(0)
    assert reader.feed(b"2026-11-21T10:00:00.000000001Z half") == b"half"
    assert reader.finish() == b"\n"
    assert reader.feed(b"9 [the last lines of node 1]\n") == b"[the last lines of node 1]\n"
    assert reader.finish() == b""


def test_the_kubelets_own_words_are_no_line_of_the_log() -> None:
    reader = KubeletLogParser(0)
    log = stamped([(1, "begun")])
    assert reader.feed(log) == b"begun\n"
    reader.resume()
    words = b"unable to retrieve container logs for containerd://36264fcc47bce62"
    assert reader.feed(words) == b""
    assert reader.finish() == b""
    reader.resume()
    assert reader.feed(log + stamped([(2, "saving")])) == b"saving\n"
