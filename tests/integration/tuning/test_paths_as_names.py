"""Paths of checkpoints as names of models, from whoever writes them: refused by the field."""

from pathlib import Path

import pytest
from tests.support.services.front import Front, running_front

RUN = "session-x:train:0"


@pytest.mark.parametrize(
    "name",
    [
        "tinker://",
        "tinker://" + "/" * 2_000_000,
        f"tinker://{RUN}/sampler_weights/" + "x" * 20_000,
        f"tinker://{RUN}/sampler_weights/" + "x" * 5_000_000,
        f"tinker://{RUN}/sampler_weights/a\0b",
        f"tinker://{RUN}/sampler_weights/\U0001f600\n\r",
        "tinker://" + "\u00e9" * 9000,
        f"tinker://{RUN}/external_weights/..",
    ],
    ids=range(8),
)
async def test_what_is_no_path_is_a_model_that_does_not_exist(front: Front, name: str) -> None:
    async with front.http() as http:
        asked = {"model": name, "messages": [{"role": "user", "content": "x"}]}
        answer = await http.post("/v1/chat/completions", json=asked)
    found = answer.status_code, answer.json()["error"]["param"]
    assert found == (404, "model"), answer.text[:300]
    assert len(answer.content) < 10_000


async def test_a_path_counts_before_anybody_looks_for_it(database_url: str, tmp_path: Path) -> None:
    asked = {"model": f"tinker://{RUN}/sampler_weights/x", "messages": []}
    limits = {"requests_per_minute": 2}
    async with (
        running_front(database_url, tmp_path / "data", limits=limits) as front,
        front.http() as http,
    ):
        found = [await http.post("/v1/chat/completions", json=asked) for _ in range(3)]
    assert [one.status_code for one in found] == [404, 404, 429]
