"""Tags of keys: what is one, and in which form they are kept."""

import pytest

from windlass.bounds import MAX_KEY_TAGS
from windlass.core.errors import InvalidArgument
from windlass.users.keys.tags import valid_tags


def test_tags_are_kept_sorted() -> None:
    given = {"team": "search", "cost-center": "a/b: 7"}
    assert valid_tags(given) == ("cost-center=a/b: 7", "team=search")


@pytest.mark.parametrize(
    "pairs",
    [
        {"": "a"},
        {"a": ""},
        {"a=b": "c"},
        {"a": "b=c"},
        {"a": "b\n"},
        {"a": " b"},
        {"\u0430": "b"},
        {"a" * 33: "b"},
        {"a": "b" * 65},
        {f"n{n}": "a" for n in range(MAX_KEY_TAGS + 1)},
    ],
)
def test_what_is_no_tag_is_refused(pairs: dict[str, str]) -> None:
    with pytest.raises(InvalidArgument) as refused:
        valid_tags(pairs)
    assert refused.value.param == "tags"
