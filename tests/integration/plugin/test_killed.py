"""A writer that is killed, and models that transformers reads."""

import random
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from tests.support.checkpoints.models import read_model, same, weights, write_model

from windlass_vllm.checkpoints.checkpoint import BlockCheckpoint
from windlass_vllm.checkpoints.diagnosis import diagnose_folder, sync_folder
from windlass_vllm.checkpoints.folder import create_checkpoint

ROOT = Path(__file__).parents[3]
# Writes one version after the other, says of each that it is written, and settles some.
WRITER = """
import sys
from pathlib import Path
from tests.integration.plugin.test_killed import version
from windlass_vllm.checkpoints.checkpoint import BlockCheckpoint
with BlockCheckpoint(Path(sys.argv[1])) as checkpoint:
    number = int(sys.argv[2])
    while True:
        number += 1
        checkpoint.write(version(number), str(number))
        print(number, flush=True)
        if number % 3 == 0:
            checkpoint.settle()
"""


def version(number: int) -> dict[str, torch.Tensor]:
    """The weights of a version: in some a little has changed, in some all."""
    live = weights(number if number % 4 == 0 else 0)
    live["bias"][:] = number % 100
    return live


def written(folder: Path, before: int, lines: int) -> int:
    """Kills a writer after it has said so many versions; returns the last of which it said so."""
    command = [sys.executable, "-c", WRITER, str(folder), str(before)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for _ in range(lines):
            assert process.stdout.readline()
        process.kill()
        # What it said before it died counts as well.
        said = [before + lines, *map(int, process.stdout.read().split())]
    return said[-1]


def test_what_a_killed_writer_said_is_there(tmp_path: Path) -> None:
    model = write_model(tmp_path / "model", version(0))
    folder = create_checkpoint(model, tmp_path / "run", "0")
    last, chance = 0, random.Random(0)
    for _ in range(5):
        last = written(folder, last, chance.randint(1, 12))
        found = diagnose_folder(folder)
        assert found.whole
        assert int(found.version) in (last, last + 1)
        synced, _ = sync_folder(folder)
        assert (synced.whole, synced.settled) == (True, found.version)
        last = int(found.version)
        assert same(read_model(folder), version(last))


@pytest.mark.torch
def test_transformers_reads_what_was_settled(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    from windlass.demo.tiny_model import make_tiny_model

    make_tiny_model(tmp_path / "model")
    folder = create_checkpoint(tmp_path / "model", tmp_path / "run", "v0")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    with BlockCheckpoint(folder) as checkpoint:
        names = {one.name for shard in checkpoint.shards for one in shard.tensors}
        live: Mapping[str, torch.Tensor] = {
            name: one for name, one in model.state_dict().items() if name in names
        }
        for number, change in enumerate((0.5, 0.25), 1):
            next(iter(live.values())).view(-1)[:7].add_(change)
            report = checkpoint.write(live, f"v{number}")
            assert (report.changed > 0, report.rewritten) == (True, [])
        checkpoint.settle()
    again = AutoModelForCausalLM.from_pretrained(folder)
    tokens = torch.arange(20)[None]
    with torch.no_grad():
        assert torch.equal(model(tokens).logits, again(tokens).logits)
