"""Names and labels, as Kubernetes takes them."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.clusters.domain import names
from windlass.core.errors import InvalidArgument

ANY = st.text(max_size=80) | st.text("abcZ09-./_", max_size=80)


@given(ANY)
def test_what_is_derived_is_a_namespace(project_id: str) -> None:
    assert names.namespace(names.derived_namespace(project_id + "x"))


@given(ANY)
def test_a_namespace_that_passes_is_one(text: str) -> None:
    try:
        names.namespace(text)
    except InvalidArgument:
        return
    assert re.fullmatch(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", text)
    assert len(text) <= 63
    assert not text.startswith("kube-")


@pytest.mark.parametrize(
    "value",
    ["kube-public", "kueue-system", "openshift-x", "default", "windlass-agent", "a.b", "a\n", "-a"],
)
def test_namespaces_of_the_clusters_own(value: str) -> None:
    with pytest.raises(InvalidArgument):
        names.namespace(value)


@pytest.mark.parametrize(
    "value", ["cpu", "nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "amd.com/gpu", "memory"]
)
def test_a_resource_of_kubernetes_is_taken_as_it_is(value: str) -> None:
    assert names.resource(value, "x") == value


@pytest.mark.parametrize(
    "value", ["", "gpu", "/gpu", "a/", "A.com/gpu", "a.com/b/c", "cpu\n", "a/ b"]
)
def test_other_names_are_refused_as_resources(value: str) -> None:
    with pytest.raises(InvalidArgument):
        names.resource(value, "x")
