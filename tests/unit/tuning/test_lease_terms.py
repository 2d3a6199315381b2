"""Terms of leases: whose they are, what a process takes by them, and settings that are none."""

from dataclasses import replace
from typing import Any

import pytest
import yaml
from pydantic import ValidationError
from tests.support.processes import pages

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.core.config.tuning import SeatsSection, TuningSection
from windlass.tuning.full_parameters import PARAMETER_BYTES
from windlass.tuning.leases.terms import KEEPER_BYTES, LeaseTerms
from windlass.tuning_api.trainers.elsewhere import PodWish
from windlass.tuning_api.trainers.records import PodResources, TrainableModel

GIB = 2**30
EAST = pb.Cluster(id="cluster_1", name="east")
SHARED = {"device_bytes": 80 * GIB, "host_bytes": 100 * GIB, "program_bytes": GIB}
WISH = PodWish("trainer", TrainableModel("m", 64, 8, 128, parameters=10**9), "run", "east")


def terms(*, takes_turns: bool = True, **changes: Any) -> LeaseTerms:
    settings = SeatsSection.model_validate({"clusters": {"east": SHARED | changes}})
    found = LeaseTerms.of(settings, EAST, takes_turns=takes_turns)
    assert found is not None
    return found


@pytest.mark.parametrize("name", ["east", "cluster_1"])
def test_a_cluster_has_them_by_its_name_and_by_its_id(name: str) -> None:
    settings = SeatsSection.model_validate({"clusters": {name: SHARED}})
    found = LeaseTerms.of(settings, EAST, takes_turns=True)
    assert found is not None
    assert found.cluster == "east"
    other = pb.Cluster(id="cluster_2", name="west")
    assert LeaseTerms.of(settings, other, takes_turns=True) is None


def test_a_process_takes_what_its_parameters_do_and_parks_it_in_the_nodes_memory() -> None:
    trainer, sampler = terms().demand(WISH), terms().demand(replace(WISH, role="sampler"))
    assert trainer.device_bytes > 10**9 * PARAMETER_BYTES
    assert trainer.host_bytes == trainer.device_bytes + GIB + KEEPER_BYTES
    assert 10**9 * 4 < sampler.device_bytes < trainer.device_bytes
    # Who keeps all on the device parks nothing.
    assert terms(takes_turns=False).demand(WISH).host_bytes == GIB + KEEPER_BYTES
    own = replace(WISH, resources=PodResources(memory_bytes=7 * GIB))
    assert terms().demand(own).host_bytes == 7 * GIB + KEEPER_BYTES


def test_who_never_fits_is_told_the_numbers_and_others_nothing() -> None:
    assert terms().refusal(WISH) == ""
    assert "east has 8 GiB, and" in terms(device_bytes=8 * GIB).refusal(WISH)
    assert "The host of east has 4 GiB" in terms(host_bytes=4 * GIB).refusal(WISH)
    several = replace(WISH, processes=2)
    assert "do not park" in terms().refusal(several)
    assert terms(takes_turns=False).refusal(several) == ""
    named = replace(WISH, resources=PodResources(gpus=1, accelerator="H200"))
    assert "no other gpus or accelerator" in terms().refusal(named)
    assert terms(accelerator="H200").refusal(named) == ""


@pytest.mark.parametrize(
    "section",
    [
        {"clusters": {"": SHARED}},
        {"clusters": {"east": {"device_bytes": 1}}},
        {"clusters": {"east": SHARED | {"gpus": 0}}},
        {"clusters": {"east": SHARED}, "parking": "cuda-checkpoint"},
    ],
)
def test_settings_that_are_none_are_refused(section: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        SeatsSection.model_validate(section)


def test_the_page_prints_settings_that_are_good() -> None:
    *_, printed = pages.blocks("how-to/train-all-parameters.md", "yaml")
    section = TuningSection.model_validate(yaml.safe_load(printed)["tuning"]).seats
    assert LeaseTerms.of(section, EAST, takes_turns=True) is not None
