"""A trainer that sees no folder of its caller, as in a pod: its states travel by its calls.

The process is the real one, by the flags that a pod starts it with, on a socket of this machine in
the place of the tunnel.
"""

import asyncio
import hashlib
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from safetensors.torch import load_file
from tests.contract.tuning.full_parameters.test_full_runs import ADAM, DATA, RUN
from tests.contract.tuning.test_lora_trainer import BASE, ONE, losses, request
from tests.support.factories import tuning_engines as make

from windlass.api.clusters.v1 import clusters_pb2
from windlass.api.trainer.v1 import trainer_pb2 as pb
from windlass.tuning_api.trainers.described import described
from windlass.tuning_api.trainers.port import Trainer, TrainerLost
from windlass.tuning_api.trainers.records import (
    FolderWritten,
    LoadState,
    Operation,
    OperationFailed,
    Run,
    SampleRequest,
    Samples,
    SaveAdapter,
    SaveState,
)
from windlass.tuning_api.trainers.remote.file_parts import UnfitParts, parts_of, written
from windlass.tuning_api.trainers.remote.process import TrainerCommand
from windlass.tuning_api.trainers.remote.trainer import RemoteTrainer
from windlass.tuning_api.trainers.seats import Seat
from windlass_agent.engines.in_pods.trainer import TrainerKind
from windlass_agent.engines.port import EngineSpec

TOKEN = "trainer-token"
FOLDER_BYTES = 64 * 2**20


@dataclass(eq=False)
class Elsewhere:
    """Implements `TrainerLauncher` and `LaunchedProcess` by a process with its own folder."""

    model: Path
    home: Path
    is_full: bool = True
    folder_bytes: int | None = FOLDER_BYTES
    token: str = TOKEN
    pid: int = 0
    process: "asyncio.subprocess.Process | None" = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def socket(self) -> Path:
        return self.home / "s"

    @property
    def has_ended(self) -> bool:
        return self.ended.is_set()

    async def launch(self, seat: Seat) -> "Elsewhere":
        asked = clusters_pb2.TrainerProcess(
            role="trainer",
            max_rank=32,
            full=self.is_full,
            processes=1,
            token_sha256=hashlib.sha256(TOKEN.encode()).digest(),
        )
        spec = EngineSpec(
            model_dir=self.model, served_name=BASE, endpoint="http://127.0.0.1:8000",
            scratch=self.home,
        )  # fmt: skip
        words = TrainerKind(Path(sys.executable), asked).command(spec)
        words = [one.replace("127.0.0.1:8000", f"unix:{self.socket}") for one in words]
        self.process = await asyncio.create_subprocess_exec(*words)
        return self

    async def wait(self) -> int:
        await self.ended.wait()
        return 0

    async def end(self) -> None:
        self.ended.set()
        if self.process is not None and self.process.returncode is None:
            self.process.terminate()
            await self.process.wait()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("base") / "model"
    make.network().save_pretrained(path)
    return path


@pytest.fixture
async def elsewhere(folder: Path, tmp_path: Path) -> AsyncIterator[Elsewhere]:
    (tmp_path / "there").mkdir()
    made = Elsewhere(folder, tmp_path / "there")
    yield made
    await made.end()


def remote(launcher: Elsewhere) -> RemoteTrainer:
    model = described(BASE, launcher.model, max_rank=32)
    return RemoteTrainer(model, launcher, idle_seconds=600.0)


async def trained(
    trainer: Trainer, at: Path, run: Run = RUN
) -> tuple[list[object], Samples | OperationFailed]:
    """Outcomes of a run that goes on from what it saved, and what its sampler says."""
    await trainer.open(run)
    loop: list[Operation] = [losses(*DATA), ADAM, losses(*DATA)]
    saves: list[Operation] = [SaveState(at / "state"), SaveAdapter(at / "model")]
    for name in ("state", "model"):
        (at / name).mkdir(parents=True)
    first = await trainer.execute(run.id, [*loop, *saves])
    assert isinstance(first[-1], FolderWritten)
    again = await trainer.execute(run.id, [LoadState(at / "state"), ADAM, losses(*DATA)])
    asked = SampleRequest(BASE, at / "model", request().prompt, 1, 3, temperature=0.0)
    said = await trainer.sample(asked)
    assert await trainer.sample(asked) == said
    return [*first, *again], said


async def test_states_and_models_travel_without_a_change(
    elsewhere: Elsewhere, folder: Path, tmp_path: Path
) -> None:
    for name in ("here", "sockets"):
        (tmp_path / name).mkdir(mode=0o700)
    command = TrainerCommand(
        BASE, folder, 32, tmp_path / "here", tmp_path / "sockets", is_full=True
    )
    here = RemoteTrainer(described(BASE, folder, max_rank=32), command, idle_seconds=600.0)
    there = remote(elsewhere)
    try:
        expected = await trained(here, tmp_path / "here" / "at")
        assert await trained(there, tmp_path / "brought") == expected
    finally:
        await here.stop()
        await there.stop()
    for name in ("state", "model"):
        for file in (tmp_path / "here" / "at" / name).iterdir():
            assert file.read_bytes() == (tmp_path / "brought" / name / file.name).read_bytes()
    assert load_file(tmp_path / "brought" / "model" / "model.safetensors")
    # A copy of what was sampled from stays, and nothing of states.
    [kept] = (tmp_path / "there" / "states").iterdir()
    assert (kept / "config.json").is_file()


async def test_adapters_of_many_travel_as_well(
    elsewhere: Elsewhere, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("here", "sockets"):
        (tmp_path / name).mkdir(mode=0o700)
    command = TrainerCommand(BASE, folder, 32, tmp_path / "here", tmp_path / "sockets")
    here = RemoteTrainer(described(BASE, folder, max_rank=32), command, idle_seconds=600.0)
    elsewhere.is_full = False
    there = remote(elsewhere)
    runs = [replace(ONE, id=f"run-{number}", seed=number) for number in range(4)]
    try:
        for one in runs:
            expected = await trained(here, tmp_path / "here" / one.id, one)
            assert await trained(there, tmp_path / one.id, one) == expected
        # Small copies stay, all of them; once they are too large together, two.
        assert len(list((tmp_path / "there" / "states").iterdir())) == len(runs)
        monkeypatch.setattr("windlass.tuning_api.trainers.remote.carried.KEPT_BYTES", 1)
        await trained(there, tmp_path / "more", replace(ONE, id="more"))
        assert len(list((tmp_path / "there" / "states").iterdir())) == 2
    finally:
        await here.stop()
        await there.stop()


async def test_more_bytes_than_a_state_has_are_refused(
    elsewhere: Elsewhere, tmp_path: Path
) -> None:
    """What a trainer sends of its folders is bounded, whatever it says of itself."""
    elsewhere.folder_bytes = 100
    trainer = remote(elsewhere)
    await trainer.open(RUN)
    (tmp_path / "state").mkdir()
    with pytest.raises(TrainerLost, match="more than 100 bytes"):
        await trainer.execute(RUN.id, [losses(*DATA), SaveState(tmp_path / "state")])
    assert not list((tmp_path / "state").iterdir())
    await trainer.stop()


@pytest.mark.parametrize(
    "bad",
    [
        [pb.FilePart(name="../up", content=b"x")],
        [pb.FilePart(name=".hidden", content=b"x")],
        [pb.FilePart(name="a/b", content=b"x")],
        [pb.FilePart(name="a", content=b"x"), pb.FilePart(name="a", content=b"y")],
        [pb.FilePart(content=b"of nothing")],
    ],
)
async def test_names_that_reach_elsewhere_leave_nothing(
    bad: list[pb.FilePart], tmp_path: Path
) -> None:
    async def parts() -> AsyncIterator[pb.FilePart]:
        for one in bad:
            yield one

    with pytest.raises(UnfitParts):
        await written(pb.FilePart(path="x"), parts(), tmp_path / "in" / "folder")
    assert list(tmp_path.iterdir()) == [tmp_path / "in"]
    assert not list((tmp_path / "in").iterdir())


async def test_a_folder_that_is_not_there_has_no_parts(tmp_path: Path) -> None:
    with pytest.raises(UnfitParts):
        [part async for part in parts_of(tmp_path / "none")]
