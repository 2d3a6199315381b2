"""Detection of drift from the applied manifest."""

from typing import Any

import pytest

from windlass_agent.namespaces.drift import APPLIED, covers, signed


@pytest.mark.parametrize(
    ("actual", "wanted", "same"),
    [
        ({"a": 1, "b": 2}, {"a": 1}, True),
        ({"a": 2}, {"a": 1}, False),
        ({}, {"a": 1}, False),
        (None, {"a": 1}, False),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 1}}, True),
        ({"a": [{"b": 1, "default": True}]}, {"a": [{"b": 1}]}, True),
        ({"a": [1, 2]}, {"a": [1]}, False),
        ({"a": [2, 1]}, {"a": [1, 2]}, False),
        # The API server leaves out an empty list; an empty object means something.
        ({}, {"egress": []}, True),
        ({}, {"namespaceSelector": {}}, False),
        ({"egress": [{}]}, {"egress": []}, False),
        ({"nominalQuota": "4"}, {"nominalQuota": "4000m"}, True),
        ({"nominalQuota": 4}, {"nominalQuota": "4"}, True),
        ({"nominalQuota": "5"}, {"nominalQuota": "4"}, False),
        ({"nominalQuota": None}, {"nominalQuota": "4"}, False),
        # Only there: elsewhere these are two words.
        ({"name": "4"}, {"name": "4000m"}, False),
        ({"automount": False}, {"automount": False}, True),
        ({}, {"automount": False}, False),
    ],
)
def test_it_has_all_that_was_wanted(actual: Any, wanted: Any, same: bool) -> None:
    assert covers(actual, wanted) is same


def test_a_manifest_that_lost_a_field_is_another_one() -> None:
    with_limit = {"metadata": {"name": "q"}, "spec": {"cohort": "a", "limit": 1}}
    without = {"metadata": {"name": "q"}, "spec": {"cohort": "a"}}
    assert covers(with_limit, without)
    assert not covers(signed(with_limit), signed(without))
    assert covers(signed(with_limit), signed(with_limit))
    assert signed(without)["metadata"]["annotations"][APPLIED]
    assert "annotations" not in without["metadata"]
