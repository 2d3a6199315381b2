"""Memory of runs of all parameters, by the headers of the files, and its refusal with numbers."""

from dataclasses import replace
from pathlib import Path

import pytest

from windlass.core.errors import FailedPrecondition
from windlass.tuning.full_parameters import FullParameterBounds
from windlass.tuning_api.trainers.described import UnreadableModel, parameters
from windlass.tuning_api.trainers.records import TrainableModel

MODEL = TrainableModel("m", 64, 8, 96, parameters=1000)
FULL = {"rank": 0}


def written(path: Path, header: bytes, size: int) -> None:
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(size))


def test_parameters_are_counted_by_headers_in_any_precision(tmp_path: Path) -> None:
    one = b'{"a":{"dtype":"F32","shape":[3,2],"data_offsets":[0,24]}}'
    two = b'{"b":{"dtype":"BF16","shape":[5],"data_offsets":[0,10]}}'
    written(tmp_path / "model-00001-of-00002.safetensors", one, 24)
    written(tmp_path / "model-00002-of-00002.safetensors", two, 10)
    assert parameters(tmp_path) == 11
    written(tmp_path / "model-00002-of-00002.safetensors", two, 9)
    with pytest.raises(UnreadableModel, match="cut short"):
        parameters(tmp_path)


def test_a_model_that_does_not_fit_is_refused_with_the_numbers() -> None:
    bounds = FullParameterBounds(trainers=1, processes=4, process_bytes=20_000)
    bounds.require(MODEL, FULL, {})
    with pytest.raises(FailedPrecondition, match=r"1,001 .* take 20,020 bytes .* 20,000 are"):
        bounds.require(replace(MODEL, parameters=1001), FULL, {})
    # A part of it in each of two.
    bounds.require(replace(MODEL, parameters=2000), FULL, {"windlass.processes": 2})
    with pytest.raises(FailedPrecondition, match="20,010 bytes in each of 2"):
        bounds.require(replace(MODEL, parameters=2001), FULL, {"windlass.processes": "2"})
    # Adapters have bounds of their own.
    bounds.require(replace(MODEL, parameters=10**9), {"rank": 8}, {})
