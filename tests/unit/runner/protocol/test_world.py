"""Topology of a training, by the variables of a pod."""

import pytest

from windlass_agent.runner.protocol.world import ALONE, World


def test_without_variables_a_process_is_alone() -> None:
    assert World.of({}) == ALONE
    assert (ALONE.size, ALONE.leads, ALONE.variables(grace_seconds=60)) == (1, True, {})


def test_a_node_knows_its_place() -> None:
    world = World.of({"PET_NNODES": "3", "PET_NPROC_PER_NODE": "8", "PET_NODE_RANK": "2"})
    assert (world.nodes, world.processes, world.size, world.leads) == (3, 8, 24, False)
    assert world.variables(grace_seconds=20.5)["PET_SHUTDOWN_TIMEOUT"] == "20"


@pytest.mark.parametrize(
    "environ",
    [
        {"PET_NNODES": "0"},
        {"PET_NNODES": "1:2"},
        {"PET_NPROC_PER_NODE": "auto"},
        {"PET_NNODES": "2", "PET_NODE_RANK": "2"},
        {"PET_NODE_RANK": "-1"},
    ],
)
def test_a_place_that_is_none_is_refused(environ: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"PET_|invalid literal"):
        World.of(environ)
