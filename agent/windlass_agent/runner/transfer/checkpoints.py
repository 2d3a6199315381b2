"""Upload of checkpoints while the training continues."""

import asyncio
import fnmatch
import shutil
from dataclasses import dataclass
from pathlib import Path

import msgspec

from windlass import modelfiles
from windlass.api.runner.v1 import runner_pb2 as pb
from windlass.core.killpoints import reach
from windlass_agent.runner.protocol.outcome import Failure
from windlass_agent.runner.reporting import model_card
from windlass_agent.runner.reporting.metrics import History
from windlass_agent.runner.reporting.model_card import ModelCard
from windlass_agent.runner.reporting.reporter import Reporter
from windlass_agent.runner.transfer.upload import Uploader

_ADAPTER_CONFIG = "adapter_config.json"
# A model is these and nothing else: no pickles, no trainer's arguments.
_MODEL_FILES = (
    "*.safetensors",
    "*.safetensors.index.json",
    "config.json",
    "generation_config.json",
    _ADAPTER_CONFIG,
    "tokenizer*.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "chat_template.jinja",
    model_card.NAME,
)
_STATE_FILES = (
    *("optimizer*", "scheduler*", "scaler*", "rng_state*", "trainer_state.json"),
    # What FSDP reads in place of the weights.
    "pytorch_model_fsdp.bin",
    # TorchTune's, whose adapter on disk is not the one that it goes on from.
    *("recipe_state.pt", "adapter_model.pt"),
)
# DeepSpeed keeps its own in folders, and without any there is nothing to go on from.
_OPTIMIZERS = ("optimizer*", "recipe_state.pt")


@dataclass(frozen=True)
class LocalCheckpoint:
    """A complete checkpoint on disk; one `to_resume` is no model of the job's project."""

    step: int
    folder: Path
    to_resume: bool = False


class CheckpointQueue:
    """A queue of checkpoints, uploaded one after another.

    The weights of each are kept, unless it is only to go on from. Of the training state only the
    newest is of use, so an older one is dropped when a newer waits behind it. A folder is deleted
    once it is uploaded.
    """

    def __init__(
        self, uploader: Uploader, reporter: Reporter, history: History, card: ModelCard
    ) -> None:
        self._uploader = uploader
        self._reporter = reporter
        self._history = history
        self._card = card
        self._waiting: list[LocalCheckpoint] = []
        self._changed = asyncio.Event()
        self._closed = False

    def add(self, checkpoint: LocalCheckpoint) -> None:
        """Takes a checkpoint over, its folder too."""
        self._waiting.append(checkpoint)
        self._changed.set()

    def close(self) -> None:
        """Says that no more will come."""
        self._closed = True
        self._changed.set()

    async def run(self) -> None:
        """Uploads until closed and empty; raises Failure `upload_failed`."""
        while self._waiting or not self._closed:
            if not self._waiting:
                await self._changed.wait()
                self._changed.clear()
                continue
            checkpoint = self._waiting.pop(0)
            await self._upload(checkpoint)
            reach("runner.checkpoint_uploaded")
            await asyncio.to_thread(shutil.rmtree, checkpoint.folder)

    async def upload_model(
        self,
        kind: "pb.ArtifactKind.ValueType",
        checkpoint: LocalCheckpoint,
        *,
        metrics: dict[str, float],
    ) -> None:
        """Uploads the weights, tokenizer and configuration that lie in a folder, and a card."""
        folder = checkpoint.folder
        if not matching(folder, ("*.safetensors",)):
            raise Failure("trainer_failed", "The trainer wrote no weights.")
        is_adapter = _name_base(folder, self._card.base_model)
        self._card.write(folder, step=checkpoint.step, is_adapter=is_adapter, metrics=metrics)
        files = matching(folder, _MODEL_FILES)
        _check(files)
        await self._uploader.upload(
            kind, step=checkpoint.step, files=files, metrics=metrics, is_adapter=is_adapter
        )

    async def _upload(self, checkpoint: LocalCheckpoint) -> None:
        step = checkpoint.step
        state: tuple[str, ...] = _STATE_FILES
        if checkpoint.to_resume:
            # Nothing else has its weights.
            state += _MODEL_FILES
        else:
            await self.upload_model(
                pb.ARTIFACT_KIND_CHECKPOINT, checkpoint, metrics=self._history.at(step)
            )
            self._reporter.info(f"Checkpoint created at step {step}")
        if not matching(checkpoint.folder, _OPTIMIZERS) or self._waiting:
            return
        _name_base(checkpoint.folder, self._card.base_model)
        files = matching(checkpoint.folder, state)
        # Another attempt may go on from it, and never repeats what was measured before.
        await self._reporter.flush()
        try:
            await self._uploader.upload(pb.ARTIFACT_KIND_TRAINING_STATE, step=step, files=files)
        except Failure as failure:
            # The model is worth more than the means to go on from here.
            self._reporter.warn(f"No training state is kept for step {step}: {failure.message}")
            return
        if checkpoint.to_resume:
            self._reporter.info(f"Training state saved at step {step}")


class NoCheckpoints(CheckpointQueue):
    """The queue of a node that does not report for its job: another node uploads the same."""

    async def _upload(self, checkpoint: LocalCheckpoint) -> None:
        return


def _check(files: list[Path]) -> None:
    """Raises Failure where a loader would refuse what a trainer left."""
    known = {file.name for file in files}
    try:
        for file in files:
            if modelfiles.is_document(file.name):
                modelfiles.check_document(file.name, file.read_bytes(), known=known)
    except modelfiles.RefusedDocument as refusal:
        raise Failure("trainer_failed", f"The trainer's model: {refusal.message}") from refusal


def matching(folder: Path, patterns: tuple[str, ...]) -> list[Path]:
    """The files right in a folder whose names match, in order of name."""
    return sorted(
        path
        for path in folder.iterdir()
        if path.is_file() and any(fnmatch.fnmatchcase(path.name, each) for each in patterns)
    )


def _name_base(folder: Path, base_model: str) -> bool:
    """Puts the base's public name where PEFT wrote a local path; says if it is an adapter."""
    path = folder / _ADAPTER_CONFIG
    if not path.exists():
        return False
    config = msgspec.json.decode(path.read_bytes())
    config["base_model_name_or_path"] = base_model
    draft = path.with_suffix(".draft")
    draft.write_bytes(msgspec.json.format(msgspec.json.encode(config), indent=2))
    draft.replace(path)
    return True
