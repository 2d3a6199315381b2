"""How long serving stands still while weights change: a fenced step, a shadow, a saved version."""

import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors.torch import save_file
from tests.bench.figures import Figure, Options, plain
from tests.support.engine_training.seen import seen_engine

from windlass_vllm.messages import FromWorker, TokenSample, Train
from windlass_vllm.optimizers.settings import apollo_mini
from windlass_vllm.training.running import TrainingRun
from windlass_vllm.training.saving import put_back, save
from windlass_vllm.training.seen_engine import SeenEngine, Weights, overwrite
from windlass_vllm.weights.private_folder import OwnFolder

_SAMPLE = TokenSample((1, 2, 3), (4, 5, 6))


class StillCaller:
    """A caller that measures how long it would keep serving still."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def send(self, message: FromWorker) -> None:
        """Hears of a step."""

    def is_cancelled(self, job: str) -> bool:
        """Returns that it is not."""
        return False

    @contextmanager
    def fence(self, job: str, *, certain: bool = False) -> Iterator[None]:
        """Measures what is done behind the fence."""
        began = time.perf_counter()
        yield
        self.seconds.append(time.perf_counter() - began)


async def measure(options: Options) -> list[Figure]:
    """Weights of 1 GiB in a shared file without a vLLM, beside one copy of them in memory."""
    layers, rounds = (4, 2) if options.quick else (32, 3)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with tempfile.TemporaryDirectory() as name:
            own = OwnFolder(Path(name))
            try:
                return _measured(seen_engine(own, layers=layers, hidden=1024), Path(name), rounds)
            finally:
                own.close()
    finally:
        torch.set_num_threads(threads)


def _measured(engine: SeenEngine, folder: Path, rounds: int) -> list[Figure]:
    copy = engine.copied()
    least = 1000 * min(_seconds(engine, copy) for _ in range(rounds + 1))
    found = []
    for mode in ("fenced", "shadow"):
        caller = StillCaller()
        job = Train(
            job=mode,
            samples=(_SAMPLE,),
            epochs=rounds + 1,
            batch=1,
            optimizer=apollo_mini(1e-6),
            mode=mode,
            place_steps=1,
        )
        ended = TrainingRun(engine, job, caller).run()
        assert ended.state == "succeeded", ended
        # The first touches pages that nobody has seen.
        still = 1000 * statistics.median(caller.seconds[1:])
        figure = plain(f"{mode}_stand_still", still, "ms").beside("one copy", least)
        found.append(figure.at_most_times(2))
    caller = StillCaller()
    model = folder / "model"
    model.mkdir()
    save_file(dict(engine.model.state_dict()), model / "model.safetensors")
    save(engine, model, folder / "run")
    for _ in range(rounds):
        put_back(engine, folder / "run", lambda: caller.fence(""))
    still = 1000 * statistics.median(caller.seconds)
    figure = plain("version_put_back", still, "ms").beside("one copy", least)
    return [*found, figure.at_most_times(2)]


def _seconds(engine: SeenEngine, copy: Weights) -> float:
    began = time.perf_counter()
    overwrite(engine.live, copy)
    return time.perf_counter() - began
