"""Values on the command line."""

import pytest
import typer

from windlass.cli.framework.values import pairs, real, seconds, size, whole


@pytest.mark.parametrize(
    ("text", "value"), [("90", 90), ("90s", 90), ("15m", 900), ("12h", 43200), ("2w", 1209600)]
)
def test_a_duration_is_read_as_seconds(text: str, value: int) -> None:
    assert seconds(text) == value


@pytest.mark.parametrize("text", ["", "m", "-1d", "1.5h", "1y", "9" * 12])
def test_other_texts_are_refused_as_durations(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        seconds(text)


def test_a_size_is_read_by_its_unit() -> None:
    sizes = {"512": 512, "2k": 2000, "64GiB": 64 * 2**30, "1Ti": 2**40, "3MB": 3_000_000}
    assert {text: size(text) for text in sizes} == sizes
    for text in ("", "GiB", "1.5G", "-1", "1i", "1PiB"):
        with pytest.raises(typer.BadParameter):
            size(text)


def test_a_number_may_be_auto() -> None:
    assert (whole("3"), whole("auto"), real("0.1"), real("auto")) == (3, "auto", 0.1, "auto")
    for text in ("0", "-1", "1.5", "x", "²"):
        with pytest.raises(typer.BadParameter):
            whole(text)
    for text in ("0", "-1", "nan", "inf", "x"):
        with pytest.raises(typer.BadParameter):
            real(text)


def test_pairs_are_split_at_the_first_equals_sign() -> None:
    assert pairs(["a=b", "c=d=e", "f="]) == {"a": "b", "c": "d=e", "f": ""}
    assert pairs(None) == {}
    for text in ("a", "=b"):
        with pytest.raises(typer.BadParameter):
            pairs([text])
