"""Engines on machines whose GPUs' memory is known: how many they get, and what cannot be held."""

from dataclasses import replace
from itertools import count

import pytest

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.inference.domain import InferencePolicy, Name, Rows, Serving, View
from windlass.inference.planning import EngineChanges, Planner
from windlass.modelfiles.footprint import Footprint

GIB = 2**30
NOW = 1_000_000.0
WEIGHTS = (
    "The weights take 30.0 GiB, the keys and values of 2048 tokens 0.2 GiB and the engine at least "
    "0.5 GiB; an engine would have"
)
POLICY = InferencePolicy("vllm", 8, 4, 600, 1e9)
MODEL = Footprint(
    weight_bytes=30 * GIB, kv_bytes=131_072, windowed_kv_bytes=0, window=0, adapter_bytes=5_000_000,
    heads=32, kv_heads=8, context_length=8192,
)  # fmt: skip


def machine(name: str, *memory: int) -> pb.Cluster:
    return pb.Cluster(
        id=name, live=True, shared=True, embedded=True, roles=["engines"],
        capacity=pb.Capacity(
            engines=["vllm", "builtin"], engine_slots=4, gpus=len(memory),
            devices=[pb.Device(id=str(at), memory_bytes=one) for at, one in enumerate(memory)],
        ),
    )  # fmt: skip


def planned(
    *clusters: pb.Cluster,
    model: Footprint | None = MODEL,
    gpus: int = 0,
    engine: str = "",
    draft: Footprint | None = None,
) -> EngineChanges:
    names = {
        "big": Name("big", "proj-a", "org-a", "big", "big", model),
        "small": Name("small", "", "", "small", "small", draft),
    }
    wanted = Serving(
        "proj-a", "big", "org-a", "big", "big", 1, NOW - 60, engine=engine, gpus=gpus,
        draft_version_id="small" if draft else "",
    )  # fmt: skip
    view = View(names=names, statuses={}, clusters={one.id: one for one in clusters})
    numbers = count()
    rows = Rows(NOW, [], [], [wanted])
    return Planner(rows, view, POLICY, lambda: f"eng-{next(numbers)}").plan()


def test_a_model_gets_the_fewest_gpus_on_which_it_fits() -> None:
    for memory, gpus in ((80, 0), (24, 2), (12, 4)):
        (made,) = planned(machine("east", *[memory * GIB] * 8)).creates
        assert made.gpus == gpus
    # What is set is not chosen.
    (made,) = planned(machine("east", *[24 * GIB] * 8), gpus=8).creates
    assert made.gpus == 8


def test_the_machine_that_can_hold_it_is_chosen() -> None:
    (made,) = planned(machine("east", 24 * GIB), machine("west", 24 * GIB, 24 * GIB)).creates
    assert (made.cluster_id, made.gpus) == ("west", 2)


def test_weights_that_no_machine_can_hold_are_said_with_the_numbers() -> None:
    plan = planned(machine("east", 8 * GIB), machine("west", 8 * GIB, 8 * GIB))
    assert not plan.creates
    ((_, error),) = plan.errors
    assert error == f"{WEIGHTS} 16.0 GiB of GPU memory in the largest live cluster."
    ((_, error),) = planned(machine("west", 24 * GIB, 24 * GIB), gpus=1).errors
    assert error == f"{WEIGHTS} 24.0 GiB of GPU memory in the largest live cluster."


def test_a_draft_counts_beside_its_model() -> None:
    draft = replace(MODEL, weight_bytes=12 * GIB)
    (made,) = planned(machine("east", *[40 * GIB] * 8), draft=draft).creates
    assert made.gpus == 2
    ((_, error),) = planned(machine("east", 40 * GIB), draft=draft).errors
    assert error == (
        "The weights take 42.0 GiB, the keys and values of 2048 tokens 0.5 GiB and the engine at "
        "least 0.5 GiB; an engine would have 40.0 GiB of GPU memory in the largest live cluster. "
        "Of the weights, 12.0 GiB are its draft's."
    )


@pytest.mark.parametrize("memory", [[0, 24 * GIB], []])
def test_what_is_not_known_refuses_nothing(memory: list[int]) -> None:
    (made,) = planned(machine("east", *memory)).creates
    assert made.gpus == 0
    (made,) = planned(machine("east", 8 * GIB), model=None).creates
    assert made.gpus == 0


def test_engines_that_do_not_divide_weights_are_left_alone() -> None:
    (made,) = planned(machine("east", 8 * GIB), engine="builtin").creates
    assert made.gpus == 0


def test_what_was_chosen_stays_while_the_machine_is_away_or_says_nothing() -> None:
    east = machine("east", *[24 * GIB] * 2)
    (made,) = planned(east).creates
    name = Name("big", "proj-a", "org-a", "big", "big", MODEL)
    wanted = Serving("proj-a", "big", "org-a", "big", "big", 1, NOW - 60)
    silent = pb.Cluster()
    silent.CopyFrom(east)
    del silent.capacity.devices[:]
    rows = Rows(NOW, [replace(made, put_generation=1)], [], [wanted])
    for clusters in ({"east": east}, {"east": silent}, {}):
        view = View(names={"big": name}, statuses={}, clusters=clusters)
        plan = Planner(rows, view, POLICY, lambda: "eng-new").plan()
        assert not plan.updates
