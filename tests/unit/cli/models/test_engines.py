"""Columns of `windlass engines`: what an engine does, where, and what it waits for."""

from typing import Any

import pytest

from windlass.cli.models.engines import COLUMNS

RUNS = {
    "id": "eng-1",
    "model": "my-base",
    "phase": "running",
    "engine": "vllm",
    "cluster_id": "cl-1",
    "replica": 2,
    "cache_percent": 35,
    "gpu_percent": 0,
    "requests": 0,
    "wait_seconds": 1.5,
    "queue_position": 0,
    "adapters": ["ft:a", "ft:b"],
    "placement_reason": "lowest price",
}
WAITS = {"id": "eng-2", "replica": 0, "queue_position": 3, "message": "Waiting for 1 GPU"}


@pytest.mark.parametrize(
    ("engine", "shown"),
    [
        (
            RUNS,
            {
                "ID": "eng-1",
                "STATE": "running",
                "REPLICA": "2",
                "PLACE": "",
                "REQUESTS": "0",
                "WAIT": "1.5 s",
                "CACHE": "35%",
                "GPU": "0%",
                "ADAPTERS": "ft:a, ft:b",
                "WHY THERE": "lowest price",
                "REASON": "",
            },
        ),
        (
            WAITS,
            {
                "REPLICA": "0",
                "PLACE": "3",
                "REQUESTS": "",
                "WAIT": "",
                "CACHE": "",
                "GPU": "",
                "ADAPTERS": "",
                "REASON": "Waiting for 1 GPU",
            },
        ),
    ],
)
def test_an_engine_is_shown(engine: dict[str, Any], shown: dict[str, str]) -> None:
    assert {name: COLUMNS[name](engine) for name in shown} == shown
