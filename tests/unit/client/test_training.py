"""Resources in the request for a configuration."""

import pytest

from windlass.backends import TRLConfig
from windlass.client.resources.training import windlass_of


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"gpu": 2}, {"gpus": 2}),
        ({"nvidia.com/gpu": "1", "memory": "64Gi"}, {"gpus": 1, "memory_bytes": 64 << 30}),
        ({"memory": "1.5G", "CPU": 4}, {"memory_bytes": 1_500_000_000, "cpus": 4}),
    ],
)
def test_resources_are_whole_units(asked: dict[str, object], told: dict[str, int]) -> None:
    assert windlass_of(TRLConfig(resources_per_node=asked))["resources"] == told


@pytest.mark.parametrize("amount", ["500m", "-1", "many", "", None])
def test_what_is_no_whole_amount_is_named(amount: object) -> None:
    with pytest.raises(ValueError, match="resources_per_node"):
        windlass_of(TRLConfig(resources_per_node={"cpu": amount}))
