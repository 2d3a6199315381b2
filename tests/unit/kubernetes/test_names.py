"""Names: whatever comes in, what goes out is one that Kubernetes takes, or an error."""

import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.core.ids import new_id
from windlass.kubernetes import names

_RFC_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")


@given(st.text(max_size=300), st.integers(min_value=0, max_value=10**6))
def test_any_id_makes_a_name(job_id: str, attempt: int) -> None:
    name = names.object_name(job_id, attempt)
    assert _RFC_1035.fullmatch(name)
    assert len(name) <= names.LONGEST_NAME
    assert name.endswith(f"-{attempt}")


@given(st.text(max_size=100), st.integers(0, 1000), st.integers(0, 1000))
def test_attempts_of_a_job_never_share_a_name(job_id: str, one: int, other: int) -> None:
    same = names.object_name(job_id, one) == names.object_name(job_id, other)
    assert same == (one == other)


def test_our_own_ids_stay_readable() -> None:
    job_id = new_id("ftjob-")
    assert names.object_name(job_id, 12) == f"{job_id.lower()}-12"


_WRONG = ["", "A", "-a", "a-", "a_b", "a b", "a/b", "../x", "a\n", "é", "a" * 64]


@pytest.mark.parametrize("value", _WRONG)
def test_a_wrong_namespace_is_refused(value: str) -> None:
    with pytest.raises(names.BadName, match="Namespace"):
        names.dns_label("Namespace", value)


@pytest.mark.parametrize(
    ("check", "value"),
    [
        (names.dns_subdomain, "a..b"),
        (names.dns_subdomain, "a" * 254),
        (names.label_value, "a b"),
        (names.label_value, "a\n"),
        (names.label_value, "-a"),
        (names.label_value, "a" * 64),
        (names.label_key, ""),
        (names.label_key, "/"),
        (names.label_key, "a/b/c"),
        (names.label_key, "A.example/x"),
        (names.label_key, "example.com/"),
    ],
)
def test_a_wrong_value_is_refused(check: Callable[[str, str], str], value: str) -> None:
    with pytest.raises(names.BadName, match="It"):
        check("It", value)


@pytest.mark.parametrize(
    "value", ["nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "google.com/tpu", "cpu", "zone"]
)
def test_resources_and_labels_are_taken(value: str) -> None:
    assert names.label_key("It", value) == value


def test_a_node_selector_is_checked_and_put_in_order() -> None:
    assert list(names.node_selector({"b": "2", "a.io/x": ""})) == ["a.io/x", "b"]
    with pytest.raises(names.BadName, match="zone"):
        names.node_selector({"zone": "a;b"})


@given(st.text(max_size=300), st.text(max_size=300))
def test_any_value_makes_a_label_of_its_own(one: str, other: str) -> None:
    label = names.label_of(one)
    assert names.is_label_value(label)
    assert (label == names.label_of(other)) == (one == other)
    assert names.label_of("my-base_2.1") == "my-base_2.1"
