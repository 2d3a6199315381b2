"""Writing versions of live weights: what is compared, what is written, what is refused."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.support.checkpoints.models import SHARDS, read_model, same, weights, write_model

from windlass_vllm.checkpoints.blocks import CHUNK
from windlass_vllm.checkpoints.checkpoint import BlockCheckpoint
from windlass_vllm.checkpoints.diagnosis import diagnose_folder
from windlass_vllm.checkpoints.disk import Disk
from windlass_vllm.checkpoints.folder import create_checkpoint
from windlass_vllm.refusal import Refused


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_model(tmp_path / "model", weights())


@pytest.fixture
def run(model: Path, tmp_path: Path) -> Path:
    return create_checkpoint(model, tmp_path / "run", "v0")


def test_a_new_folder_is_the_model_and_what_belongs_to_it(model: Path, run: Path) -> None:
    assert same(read_model(run), weights())
    names = {path.name for path in run.iterdir()}
    assert names == {*SHARDS, "config.json", "model.safetensors.index.json", ".windlass"}
    assert all((run / name).stat().st_ino != (model / name).stat().st_ino for name in SHARDS)
    found = diagnose_folder(run)
    assert (found.version, found.settled, found.whole) == ("v0", "v0", True)


def test_only_what_changed_is_written(run: Path) -> None:
    live = weights()
    live["embed.weight"][0, 0] += 1
    live["bias"][-1] += 1
    with BlockCheckpoint(run) as checkpoint:
        report = checkpoint.write(live, "v1")
        # The last block of `bias` is shorter: 666 bytes are its only one.
        assert report.tensors == {"bias": 666, "embed.weight": 4096}
        assert (report.changed, report.rewritten) == (4762, [])
        assert report.written < 4762 + 256
        assert report.compared == sum(one.nbytes for one in live.values())
        assert same(read_model(run), weights()), "the files wait for the settling"
        assert checkpoint.settle() > 4762
        assert checkpoint.settle() == 0
    assert same(read_model(run), live)


def test_the_files_are_not_read_to_compare(run: Path) -> None:
    """Where a file was changed by others, only the blocks that changed live are written."""
    live = weights()
    live["up.weight"][0, 0] += 1
    with BlockCheckpoint(run) as checkpoint:
        path = run / SHARDS[1]
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(bytes(content))
        assert checkpoint.write(live, "v1").changed == 4096


def test_a_block_that_changed_often_is_settled_once(run: Path) -> None:
    live = weights()
    with BlockCheckpoint(run) as checkpoint:
        table = checkpoint.write(live, "v1").written
        for number in range(5):
            live["up.weight"][3] = number
            checkpoint.write(live, f"v{number + 2}")
        assert table < 256
        checkpoint.settle()
    found = diagnose_folder(run)
    assert (found.settled, found.generation, found.whole) == ("v6", 6, True)
    assert same(read_model(run), live)


def test_where_most_has_changed_the_file_is_written_whole(run: Path) -> None:
    live = weights()
    live["up.weight"] += 1
    with BlockCheckpoint(run) as checkpoint:
        report = checkpoint.write(live, "v1")
    size = (run / SHARDS[1]).stat().st_size
    assert report.rewritten == [SHARDS[1]]
    assert report.tensors == {"up.weight": live["up.weight"].nbytes}
    assert size < report.written < size + 2048, "once, and the log"
    assert same(read_model(run), live)


def test_a_sample_decides_on_large_tensors_and_the_report_is_exact(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    live = {"large": torch.zeros(32 * CHUNK + 9, dtype=torch.uint8)}
    save_file(live, folder / "model.safetensors")
    run = create_checkpoint(folder, tmp_path / "run", "v0")
    with BlockCheckpoint(run) as checkpoint:
        # All that the sample sees has changed, and a little of the rest.
        for at in (0, 16 * CHUNK):
            live["large"][at : at + CHUNK] += 1
        sampled = checkpoint.write(live, "v1")
        assert (sampled.rewritten, sampled.changed) == (["model.safetensors"], 2 * CHUNK)
        # It sees nothing, and most has changed.
        live["large"][CHUNK : 16 * CHUNK] += 1
        live["large"][17 * CHUNK :] += 1
        unseen = checkpoint.write(live, "v2")
        assert (unseen.rewritten, unseen.changed) == (["model.safetensors"], 30 * CHUNK + 9)
        assert unseen.tensors == {"large": unseen.changed}
    assert diagnose_folder(run).whole
    assert torch.equal(load_file(run / "model.safetensors")["large"], live["large"])


def test_changes_at_the_edges_of_pieces_are_found(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    live = {"large": torch.zeros(CHUNK // 2 * 5 + 7, dtype=torch.uint8)}
    save_file(live, folder / "model.safetensors")
    run = create_checkpoint(folder, tmp_path / "run", "v0")
    places = (0, 4095, 4096, CHUNK - 1, CHUNK, CHUNK + 4096 * 3, live["large"].numel() - 1)
    for place in places:
        live["large"][place] = 1
    with BlockCheckpoint(run) as checkpoint:
        # Two pairs of the places share a block.
        assert checkpoint.write(live, "v1").changed == 5 * 4096 + 7 + 0
        checkpoint.settle()
    assert diagnose_folder(run).whole


def test_weights_that_move_meanwhile_are_kept_as_they_were_written(run: Path) -> None:
    live = weights()

    class Moving(Disk):
        def write(self, name: str, offset: int, content: bytes | memoryview) -> None:
            live["up.weight"][:10] += 1
            super().write(name, offset, content)

    live["up.weight"][:20] += 1
    with BlockCheckpoint(run, disk=Moving(run)) as checkpoint:
        checkpoint.write(live, "v1")
        checkpoint.settle()
    assert diagnose_folder(run).whole
    with BlockCheckpoint(run) as checkpoint:
        assert checkpoint.write(live, "v2").changed > 0
        checkpoint.settle()
    assert same(read_model(run), live)


def test_views_and_transposed_weights_are_written_as_they_are(run: Path) -> None:
    live = weights()
    fused = torch.cat([live["up.weight"] + 1, live["up.weight"]])
    live["up.weight"] = fused[:96]
    live["embed.weight"] = (live["embed.weight"] + 1).t().contiguous().t()
    with BlockCheckpoint(run) as checkpoint:
        checkpoint.write(live, "v1")
        checkpoint.settle()
    assert same(read_model(run), live)


@pytest.mark.parametrize(
    "change",
    [
        {"bias": torch.zeros(333)},
        {"bias": torch.zeros(332).bfloat16()},
        {"other": torch.zeros(1)},
        {"bias": None},
    ],
    ids=["type", "shape", "more", "fewer"],
)
def test_weights_of_another_model_are_refused(
    change: dict[str, torch.Tensor | None], run: Path
) -> None:
    live = {name: one for name, one in (weights() | change).items() if one is not None}
    with BlockCheckpoint(run) as checkpoint:
        with pytest.raises(Refused) as refused:
            checkpoint.write(live, "v1")
        assert refused.value.reason == "tensors_differ"
        assert checkpoint.write(weights(), "v1").changed == 0


@pytest.mark.parametrize("version", ["", "x" * 257])
def test_a_version_has_a_name_of_a_length(version: str, run: Path) -> None:
    with BlockCheckpoint(run) as checkpoint, pytest.raises(Refused) as refused:
        checkpoint.write(weights(), version)
    assert refused.value.reason == "invalid_setting"


def test_one_process_writes_a_folder(run: Path) -> None:
    with BlockCheckpoint(run):
        for use in (BlockCheckpoint, diagnose_folder):
            with pytest.raises(Refused) as refused:
                use(run)
            assert refused.value.reason == "in_use"
    BlockCheckpoint(run).close()


def test_a_closed_checkpoint_writes_nothing(run: Path) -> None:
    checkpoint = BlockCheckpoint(run)
    checkpoint.close()
    for use in (lambda: checkpoint.write(weights(), "v1"), checkpoint.settle):
        with pytest.raises(Refused) as refused:
            use()
        assert refused.value.reason == "checkpoint_closed"
