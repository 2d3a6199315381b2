"""What operators' metrics say of chats, read where Prometheus would."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.support.services.front import Engine, Front, running_engine, running_front

from windlass.core.app import runtime_dir

HI: Any = [{"role": "user", "content": "hi"}]


@pytest.fixture
async def front(database_url: str, tmp_path: Path) -> AsyncIterator[Front]:
    async with running_front(database_url, tmp_path / "data") as front:
        yield front


@pytest.fixture
async def engine(front: Front) -> AsyncIterator[Engine]:
    async with running_engine() as engine:
        front.board.pin("toy", engine.address)
        yield engine


async def scraped(front: Front) -> dict[str, float]:
    """Returns every sample without labels, and those with them by their sum."""
    address = runtime_dir(front.app.settings.data_dir) / "front.operations"
    async with httpx.AsyncClient(base_url=address.read_text().strip()) as http:
        page = (await http.get("/metrics")).text
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            found[sample.name] = found.get(sample.name, 0.0) + sample.value
    return found


async def test_a_chat_counts_its_tokens_and_a_stream_its_times(
    front: Front, engine: Engine
) -> None:
    client, begun = front.openai(), await scraped(front)

    async def grown(name: str) -> float:
        name = f"windlass_inference_{name}"
        return (await scraped(front))[name] - begun[name]

    await client.chat.completions.create(model="toy", messages=HI)
    assert await grown("prompt_tokens_total") == 7
    assert await grown("completion_tokens_total") == 3
    assert await grown("first_token_seconds_count") == 0
    async for _ in await client.chat.completions.create(model="toy", messages=HI, stream=True):
        pass
    assert await grown("prompt_tokens_total") == 14
    assert await grown("completion_tokens_total") == 6
    assert await grown("first_token_seconds_count") == 1
    assert 0 < await grown("first_token_seconds_sum") < 30
    assert await grown("inter_token_seconds_count") == 1
    assert 0 < await grown("inter_token_seconds_sum") < 30


async def test_a_model_is_a_label_of_its_own_metrics_alone(front: Front, engine: Engine) -> None:
    front.board.pin("ft:toy:a", engine.address)
    client = front.openai()
    for model in ("toy", "ft:toy:a", "ft:toy:a"):
        await client.chat.completions.create(model=model, messages=HI)
    with pytest.raises(openai.NotFoundError):
        await client.chat.completions.create(model="nobodys", messages=HI)
    address = runtime_dir(front.app.settings.data_dir) / "front.operations"
    async with httpx.AsyncClient(base_url=address.read_text().strip()) as http:
        page = (await http.get("/metrics")).text
    lines = [one for one in page.splitlines() if "toy" in one]
    assert all(one.startswith("windlass_model_") for one in lines)
    assert "nobodys" not in page, "what is no model makes no series"
    found = {
        sample.labels["model"]: sample.value
        for family in text_string_to_metric_families("\n".join(lines))
        for sample in family.samples
        if sample.name == "windlass_model_tokens_total" and sample.labels["what"] == "generated"
    }
    assert found["ft:toy:a"] >= 2 * 3
    assert found["toy"] >= 3
