"""From a chat to its first token where no engine runs yet, beside the engine alone.

Each round asks a model that nobody has asked before. The floor is the built-in engine on the same
folder, started bare, from its start to the first token of the same chat. Both find programs and
weights in the machine's memory.
"""

import statistics
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from openai import AsyncOpenAI
from tests.bench.figures import Figure, Options, at_most, plain
from tests.bench.plant import Plant, single
from tests.support.processes.engine import running_engine

from windlass.demo.tiny_model import make_tiny_model

MAX_ADDED_SECONDS = 1.0


async def measure(options: Options) -> list[Figure]:
    """Medians of rounds that take turns, after one of each that is not counted."""
    rounds = 1 if options.quick else options.pairs
    through, alone = [], []
    with TemporaryDirectory() as folder, single({"log_level": "WARNING"}) as plant:
        model = make_tiny_model(Path(folder) / "model")
        for number in range(rounds + 1):
            through.append(await _through(plant, model, f"cold-{number}"))
            alone.append(await _alone(model))
    added = [ours - floor for ours, floor in zip(through[1:], alone[1:], strict=True)]
    return [
        at_most("cold_chat_added", statistics.median(added), "s", MAX_ADDED_SECONDS),
        plain("cold_chat", statistics.median(through[1:]), "s").beside(
            "bare engine", statistics.median(alone[1:])
        ),
    ]


async def _through(plant: Plant, folder: Path, name: str) -> float:
    with plant.client() as client:
        client.models.import_folder(name, folder)
    base_url, key = f"{plant.windlass.url}/v1", plant.windlass.owner_key
    async with AsyncOpenAI(base_url=base_url, api_key=key, max_retries=0) as openai:
        return await first_token(openai, name, time.perf_counter())


async def _alone(folder: Path) -> float:
    began = time.perf_counter()
    with running_engine(folder, cold=True) as engine:
        async with engine.client() as openai:
            return await first_token(openai, engine.name, began)


async def first_token(openai: AsyncOpenAI, model: str, began: float) -> float:
    """Seconds from `began` to the first piece of an answer; raises RuntimeError without one."""
    stream = await openai.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": "What is your name?"}],
        max_tokens=4,
        temperature=0,
        stream=True,
        timeout=300,
    )
    async with stream:
        async for piece in stream:
            if piece.choices and piece.choices[0].delta.content:
                return time.perf_counter() - began
    raise RuntimeError(f"{model} answered nothing")
