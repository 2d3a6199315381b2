"""Live weights as the next version of a run's checkpoint, and that version as live weights."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from windlass_vllm.checkpoints.checkpoint import BlockCheckpoint
from windlass_vllm.checkpoints.comparing import check_weights
from windlass_vllm.checkpoints.diagnosis import sync_folder
from windlass_vllm.checkpoints.folder import create_checkpoint
from windlass_vllm.optimizers.in_backward import InBackwardOptimizer
from windlass_vllm.optimizers.saving import save_state
from windlass_vllm.refusal import Refused
from windlass_vllm.run_folder import RunFolder, SavedProgress
from windlass_vllm.training.seen_engine import SeenEngine

_BASE = "base"


def save(
    engine: SeenEngine,
    model: Path,
    run: Path,
    *,
    job: str = "",
    step: int = 0,
    optimizer: InBackwardOptimizer | None = None,
) -> str:
    """Writes what changed since the version before, and returns the new one; raises Refused."""
    counted = engine.counter.begun
    progress = SavedProgress(f"step-{counted}", counted, job, step)
    folder = RunFolder(run)
    try:
        if not folder.checkpoint.exists():
            create_checkpoint(model, folder.checkpoint, _BASE)
        if optimizer is not None:
            save_state(folder.state(progress.version), optimizer, progress.version)
        folder.write_progress(progress)
        with BlockCheckpoint(folder.checkpoint, protected=[model]) as checkpoint:
            checkpoint.write(_named(engine.model, checkpoint), progress.version)
            checkpoint.settle()
        folder.drop_older(progress.version)
    except OSError as error:
        raise Refused("not_written", str(error)) from error
    finally:
        folder.close()
    return progress.version


def put_back(
    engine: SeenEngine, run: Path, fence: Callable[[], AbstractContextManager[None]]
) -> str:
    """Puts the newest version in the place of the live weights, behind a fence; raises Refused.

    Its digests are compared before anything is changed.
    """
    folder = RunFolder(run)
    try:
        progress = folder.progress()
        diagnosis, _ = sync_folder(folder.checkpoint)
        if progress is None or progress.version != diagnosis.version or not diagnosis.whole:
            raise Refused("block_damaged", "the newest version of the run is damaged")
        with BlockCheckpoint(folder.checkpoint) as checkpoint:
            live = _named(engine.model, checkpoint)
            check_weights(live, checkpoint.shards)
            with fence():
                engine.counter.begin()
                for shard in checkpoint.shards:
                    _read(checkpoint.folder / shard.name, live)
                engine.counter.end()
    except (OSError, SafetensorError) as error:
        raise Refused("block_damaged", f"the newest version cannot be read: {error}") from error
    finally:
        folder.close()
    return progress.version


def _named(model: Any, checkpoint: BlockCheckpoint) -> dict[str, Any]:
    """The live weights by the names in the files.

    Hugging Face names weights that two modules share twice, and files name them once.
    """
    named = {one.name for shard in checkpoint.shards for one in shard.tensors}
    return {name: one for name, one in model.state_dict().items() if name in named}


def _read(path: Path, live: dict[str, Any]) -> None:
    with safe_open(path, framework="pt") as file:
        for name in file.keys():  # noqa: SIM118  # A file of safetensors is no mapping.
            if name in live:
                live[name].copy_(file.get_tensor(name))
