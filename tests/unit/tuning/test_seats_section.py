"""Settings of shared devices, and what trainers take by them."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from windlass.core.config.tuning import SeatsSection, TuningSection
from windlass.tuning.full_parameters import PARAMETER_BYTES
from windlass.tuning.seats.devices import as_environment, declared, demand_of
from windlass.tuning_api.seating.admission import Demand
from windlass.tuning_api.trainers.seats import SeatedWorkload

GROUP = {"pair": {"device_bytes": 100, "devices": 2, "visible": "0,1"}}


def test_what_is_on_several_devices_is_not_parked_by_nvidias_program() -> None:
    with pytest.raises(ValidationError, match="pair is a group"):
        SeatsSection.model_validate({"devices": GROUP, "parking": "cuda-checkpoint"})
    section = SeatsSection.model_validate({"devices": GROUP})
    assert as_environment(section, "pair") == {"CUDA_VISIBLE_DEVICES": "0,1"}
    assert as_environment(section, "another") == {}


def test_runs_of_several_processes_take_no_turns_that_would_end_them() -> None:
    several = {"full_parameter_processes": 2}
    with pytest.raises(ValidationError, match="several processes do not park"):
        TuningSection.model_validate(several | {"seats": {"turns": "fifo"}})
    TuningSection.model_validate(several | {"seats": {"turns": "fifo", "parking": "none"}})
    TuningSection.model_validate(several)


def test_without_settings_the_processors_are_the_device(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(bytes(1000))
    [device] = declared(SeatsSection.model_validate({"host_bytes": 7}))
    assert (device["device"], device["device_bytes"], device["host_bytes"]) == ("cpu", 7, 7)
    folders, shared = {"m": tmp_path}, SeatedWorkload("m")
    found = demand_of(SeatsSection(), folders, shared)
    # The memory of the processors is the host's.
    assert found.host_bytes > found.device_bytes > 1000
    given = SeatsSection.model_validate({"demands": {"m": {"device_bytes": 5, "host_bytes": 6}}})
    assert demand_of(given, folders, shared) == Demand(5, 6)
    # What trains all parameters is not what the model's trainer takes.
    own = demand_of(given, folders, SeatedWorkload("m", "run", trained=10**9))
    assert own.device_bytes > 10**9 * PARAMETER_BYTES
