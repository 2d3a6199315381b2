"""Names, paths and metadata of tuning."""

import pytest

from windlass.core.errors import InvalidArgument, NotFound
from windlass.tuning.domain import (
    METADATA_BYTES,
    CheckpointPath,
    option,
    parse_path,
    valid_metadata,
    valid_name,
)


def test_a_path_is_its_parts() -> None:
    for text in ("tinker://s:train:0/weights/a", "tinker://s:train:0/sampler_weights/b.1"):
        assert str(parse_path(text)) == text
    assert parse_path("tinker://r/weights/a") == CheckpointPath("r", False, "a")


@pytest.mark.parametrize(
    "path",
    [
        "", "tinker://", "r/weights/a", "tinker://r/weights", "tinker://r/other/a",
        "tinker://r/weights/a/b", "http://r/weights/a", "tinker:///weights/a/..",
    ],
)  # fmt: skip
def test_another_path_never_was(path: str) -> None:
    with pytest.raises(NotFound):
        parse_path(path)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "-a", "a b", "a\n", "x" * 129, "ä"])
def test_a_name_is_a_segment(name: str) -> None:
    assert valid_name("a.b-c_9") == "a.b-c_9"
    with pytest.raises(InvalidArgument):
        valid_name(name)


def test_options_are_known_and_of_their_kind() -> None:
    found = valid_metadata('{"windlass.exclusive": "true", "mine": [1]}')
    assert option(found, "windlass.exclusive")
    assert not option(valid_metadata('{"windlass.exclusive": false}'), "windlass.exclusive")
    assert valid_metadata("") == {}
    for text in ('{"windlass.exclusive": 1.5}', '{"windlass.": true}', "[]", "{", "3"):
        with pytest.raises(InvalidArgument):
            valid_metadata(text)
    assert valid_metadata('{"a": ' + "[" * 200 + "]" * 200 + "}")
    for value in ('"' + "x" * METADATA_BYTES + '"', "[" * 300 + "]" * 300, "[" * 1000 + "]" * 1000):
        with pytest.raises(InvalidArgument):
            valid_metadata(f'{{"a": {value}}}')
