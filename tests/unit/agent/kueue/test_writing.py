"""Quotas as Kueue's resource groups, and back."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass_agent.kueue import reading, writing

_PAIRS = st.lists(
    st.tuples(st.sampled_from("abcd"), st.sampled_from(["cpu", "memory", "x/gpu", "y/gpu"])),
    unique=True,
    max_size=16,
)


def _quotas(pairs: list[tuple[str, str]]) -> list[pb.ResourceQuota]:
    return [
        pb.ResourceQuota(flavor=flavor, resource=resource, nominal=number)
        for number, (flavor, resource) in enumerate(pairs, 1)
    ]


def _read(groups: list[dict[str, Any]]) -> pb.ClusterQueue:
    return reading.cluster_queue({"metadata": {"name": "q"}, "spec": {"resourceGroups": groups}})


@given(_PAIRS)
def test_groups_are_as_kueue_wants_them_and_say_the_same(pairs: list[tuple[str, str]]) -> None:
    quotas = _quotas(pairs)
    groups = writing.resource_groups(quotas)
    resources = [name for group in groups for name in group["coveredResources"]]
    flavors = [flavor["name"] for group in groups for flavor in group["flavors"]]
    assert len(resources) == len(set(resources))
    assert len(flavors) == len(set(flavors))
    for group in groups:
        for flavor in group["flavors"]:
            assert [one["name"] for one in flavor["resources"]] == group["coveredResources"]
    found = {(one.flavor, one.resource): one.nominal for one in _read(groups).quotas}
    assert {pair: found.pop(pair) for pair in pairs} == {
        (one.flavor, one.resource): one.nominal for one in quotas
    }
    assert set(found.values()) <= {0}


def test_resources_of_their_own_flavors_stand_apart() -> None:
    quotas = _quotas([("spot", "cpu"), ("h100", "x/gpu"), ("spot", "memory"), ("a100", "x/gpu")])
    assert [
        (group["coveredResources"], [flavor["name"] for flavor in group["flavors"]])
        for group in writing.resource_groups(quotas)
    ] == [(["cpu", "memory"], ["spot"]), (["x/gpu"], ["h100", "a100"])]
