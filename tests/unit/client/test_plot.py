"""Curves in a terminal's cells."""

from hypothesis import given
from hypothesis import strategies as st

from windlass.client.display.plot import Line, plot
from windlass.client.resources.measurements import Measurements

VALUES = st.floats(allow_nan=True, allow_infinity=True, width=32)


def text(line: Line) -> str:
    return "".join(run.text for run in line)


def test_a_falling_line_falls() -> None:
    points = [(1.0, 4.0), (2.0, 3.0), (3.0, 2.0), (4.0, 1.0)]
    lines = plot({"loss": points}, width=16, height=4, ascii_only=True)
    assert [text(line) for line in lines] == [
        "         4 │*   ",
        "           │ *  ",
        "           │  * ",
        "         1 │   *",
        "            1  4",
    ]


def test_series_are_told_apart_and_the_later_is_in_front() -> None:
    series = {"train": [(1.0, 0.0), (9.0, 0.0)], "valid": [(5.0, 0.0)]}
    lines = plot(series, width=20, height=1, ascii_only=False)
    (row, _) = lines
    assert {run.series for run in row} == {None, "train", "valid"}


@given(st.lists(VALUES, max_size=50), st.integers(1, 120), st.integers(1, 20), st.booleans())
def test_whatever_was_measured_fits(
    values: list[float], width: int, height: int, ascii_only: bool
) -> None:
    points = [(float(step), value) for step, value in enumerate(values)]
    lines = plot({"x": points}, width=width, height=height, ascii_only=ascii_only)
    assert len(lines) in (0, height + 1)
    assert all(len(text(line)) <= max(width, 24) for line in lines)


def event(number: int, step: int, **values: float) -> dict[str, object]:
    return {"id": f"e-{number}", "type": "metrics", "data": {"step": step, **values}}


def test_a_step_that_was_made_twice_counts_as_it_was_made_last() -> None:
    measured = Measurements()
    for each in (
        event(1, 1, train_loss=3.0), event(2, 2, train_loss=2.5), event(3, 2, valid_loss=2.0),
        {"id": "m", "type": "message", "data": None}, event(4, 2, train_loss=2.25),
    ):  # fmt: skip
        measured.add(each)
    assert measured.panel("loss") == {
        "train_loss": [(1.0, 3.0), (2.0, 2.25)],
        "valid_loss": [(2.0, 2.0)],
    }
    assert measured.names == ["train_loss", "valid_loss"]
