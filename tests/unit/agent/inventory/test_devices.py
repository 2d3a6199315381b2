"""Classes of devices, what slices offer of them, and claims."""

from typing import Any

import pytest

from windlass_agent.inventory.devices import (
    Claim,
    class_states,
    node_devices,
    trim_claim,
    trim_class,
    trim_slice,
)

DRIVER = "gpu.example.com"


def device_class(*expressions: str) -> Any:
    selectors = [{"cel": {"expression": expression}} for expression in expressions]
    return trim_class({"spec": {"selectors": selectors}})


def device_slice(
    *types: str, node: str = "n1", driver: str = DRIVER, pool: str = "", generation: int = 1
) -> Any:
    devices = [
        {
            "name": f"d{at}",
            "attributes": {"type": {"string": type_}, "uuid": {"string": f"u{at}"}},
        }
        for at, type_ in enumerate(types)
    ]
    pool_ = {"name": pool or node, "generation": generation}
    return trim_slice(
        {"spec": {"driver": driver, "pool": pool_, "nodeName": node, "devices": devices}}
    )


@pytest.mark.parametrize(
    ("expressions", "count"),
    [
        (["device.driver == 'gpu.example.com'"], 3),
        (['device.driver == "gpu.example.com"'], 3),
        (["device.driver == 'other.example.com'"], 0),
        (
            [
                "device.driver == 'gpu.example.com' && "
                "device.attributes['gpu.example.com'].type == 'mig'"
            ],
            1,
        ),
        (
            [
                "device.driver == 'gpu.example.com'",
                "device.attributes['gpu.example.com'].type == 'gpu'",
            ],
            2,
        ),
        # What cannot be judged is taken to hold.
        (
            [
                "device.driver == 'gpu.example.com' && "
                "device.capacity['gpu.example.com'].memory.compareTo(quantity('40Gi')) > 0"
            ],
            3,
        ),
        (["device.driver == 'a' || device.driver == 'b'"], 3),
        ([], 3),
    ],
)
def test_a_class_takes_what_its_expressions_name(expressions: list[str], count: int) -> None:
    classes = {"c": device_class(*expressions)}
    state = class_states(classes, [device_slice("gpu", "gpu", "mig")], [])["c"]
    assert (state.capacity, state.allocatable) == (count, count)
    assert state.is_device_class


def test_an_old_generation_of_a_pool_does_not_count() -> None:
    slices = [
        device_slice("gpu", "gpu", generation=1),
        device_slice("gpu", generation=2),
        device_slice("gpu", node="n2"),
    ]
    classes = {"c": device_class(f"device.driver == '{DRIVER}'")}
    assert class_states(classes, slices, [])["c"].capacity == 2
    offers = node_devices(classes, slices)
    assert {node: [one.capacity for one in its] for node, its in offers.items()} == {
        "n1": [1],
        "n2": [1],
    }


def claim(
    requests: list[dict[str, Any]], results: list[dict[str, Any]] | None = None
) -> Claim | None:
    status = {} if results is None else {"allocation": {"devices": {"results": results}}}
    return trim_claim({"spec": {"devices": {"requests": requests}}, "status": status})


def exactly(name: str, class_: str, count: int = 1) -> dict[str, Any]:
    return {"name": name, "exactly": {"deviceClassName": class_, "count": count}}


def test_claims_are_counted_by_class() -> None:
    choice = {
        "name": "b",
        "firstAvailable": [
            {"name": "large", "deviceClassName": "big", "count": 2},
            {"name": "small", "deviceClassName": "c"},
        ],
    }
    waiting = claim([exactly("a", "c", 4), choice])
    assert waiting == Claim(False, (("big", 2), ("c", 4)))
    has = claim(
        [exactly("a", "c", 2), choice],
        [
            {"request": "a"},
            {"request": "a"},
            {"request": "b/small"},
            {"request": "a", "adminAccess": True},
        ],
    )
    assert has == Claim(True, (("c", 3),))
    assert claim([]) is None
    assert waiting
    assert has
    states = class_states({"c": device_class(), "big": device_class()}, [], [waiting, has])
    assert (states["c"].running, states["c"].pending) == (3, 4)
    assert (states["big"].running, states["big"].pending) == (0, 2)


def test_a_device_of_which_several_have_a_part_counts_once() -> None:
    parts = [
        {"request": "a", "driver": DRIVER, "pool": "n1", "device": name, "shareID": share}
        for name, share in (("gpu-0", "s-1"), ("gpu-0", "s-2"), ("gpu-1", "s-3"))
    ]
    claims = [claim([exactly("a", "c")], [part]) for part in parts]
    whole = claim([exactly("a", "c")], [{"request": "a"}])
    states = class_states({"c": device_class()}, [], [one for one in [*claims, whole] if one])
    assert (states["c"].running, states["c"].pending) == (3, 0)
