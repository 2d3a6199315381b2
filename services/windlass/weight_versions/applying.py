"""Puts versions in place, all of them or none."""

import os
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from pathlib import Path

import numpy as np
import xxhash

from windlass.weight_versions.content import Piece, VersionContent
from windlass.weight_versions.manifest import TensorRecord, WeightManifest
from windlass.weight_versions.refusals import WeightsRefused, WeightsTorn
from windlass.weight_versions.tensors import TensorBytes, Weights, tensor_digest

_WORKERS = 2


class CheckedChain:
    """Versions that follow each other, whose content was checked; `apply` is its one use."""

    def __init__(self, steps: Sequence[VersionContent], weights: Weights, scratch: Path):
        """`steps` begin with a full version, or with the delta against what `weights` hold."""
        self._steps = steps
        self._weights = weights
        self._scratch = scratch

    def check(self) -> None:
        """Raises WeightsRefused for damaged content, or for other tensors than the weights'."""
        for step in self._steps:
            fit(step.manifest, self._weights)
        with ThreadPoolExecutor(_WORKERS, thread_name_prefix="weights") as pool:
            _finished(
                [
                    pool.submit(step.check, record)
                    for step in self._steps
                    for record in step.manifest.tensors
                ]
            )

    def apply(self, then: Callable[[], None] = lambda: None) -> None:
        """Puts the last version in place, and does `then`; only this may use the weights meanwhile.

        After whatever it or `then` raises the weights have the bits that they had before, unless
        that is WeightsTorn.
        """
        change = _Change(self._weights, self._scratch)
        try:
            with ThreadPoolExecutor(_WORKERS, thread_name_prefix="weights") as pool:
                for step in self._steps:
                    # All end before the next version begins, or before anything is undone.
                    work = [pool.submit(change.put, step, one) for one in step.manifest.tensors]
                    _finished(work)
            then()
        except BaseException:
            change.undo()
            raise
        finally:
            change.close()


def _finished(work: Sequence[Future[None]]) -> None:
    """Raises what the first to fail did, once nothing runs any more."""
    _, left = wait(work, return_when=FIRST_EXCEPTION)
    for one in left:
        one.cancel()
    wait(work)
    for one in work:
        if not one.cancelled():
            one.result()


class _Change:
    """Changes that were made, and the way to take them back."""

    def __init__(self, weights: Weights, scratch: Path):
        self._weights = weights
        # What a full version replaces, at the places of the new bytes.
        self._replaced = tempfile.TemporaryFile(dir=scratch)  # noqa: SIM115
        self._done: list[Callable[[], None]] = []

    def put(self, step: VersionContent, record: TensorRecord) -> None:
        """Puts a tensor in place; raises WeightsRefused unless it is then what it should be."""
        tensor, hasher = self._weights[record.name], xxhash.xxh3_128()
        for piece in step.pieces(record):
            if record.encoding == "xor":
                self._xor(tensor, step, piece)
            else:
                self._replace(tensor, step, piece)
            # At once, while it is in the cache.
            hasher.update(tensor.read(piece.start, piece.start + piece.size).data)
        found = tensor_digest(tensor) if record.encoding == "same" else hasher.hexdigest()
        if found != record.digest:
            message = (
                f"{record.name} would not be that of version {step.manifest.version}: "
                "the weights are not those of its parent."
            )
            raise WeightsRefused("wrong_parent", message)

    def undo(self) -> None:
        """Takes everything back; raises WeightsTorn where that fails."""
        try:
            for one in reversed(self._done):
                one()
        except BaseException as error:
            raise WeightsTorn("The weights could not be brought back.") from error

    def close(self) -> None:
        self._replaced.close()

    def _xor(self, tensor: TensorBytes, step: VersionContent, piece: Piece) -> None:
        difference = step.decoded(piece)
        seen = xxhash.xxh3_64_intdigest(difference.data)

        def again() -> None:
            same = step.decoded(piece)
            if xxhash.xxh3_64_intdigest(same.data) != seen:
                raise WeightsRefused("damaged_content", "The content changed meanwhile.")
            tensor.xor(piece.start, same)

        tensor.xor(piece.start, difference)
        self._done.append(again)

    def _replace(self, tensor: TensorBytes, step: VersionContent, piece: Piece) -> None:
        content = step.decoded(piece)
        old, place = tensor.read(piece.start, piece.start + piece.size).data, piece.place
        file = self._replaced.fileno()
        while old:
            written = os.pwrite(file, old, place)
            old, place = old[written:], place + written

        def put_back() -> None:
            content = os.pread(file, piece.size, piece.place)
            tensor.write(piece.start, np.frombuffer(content, np.uint8))

        self._done.append(put_back)
        tensor.write(piece.start, content)


def fit(manifest: WeightManifest, weights: Weights) -> None:
    """Raises WeightsRefused `wrong_tensor` for a version of other tensors than the weights'."""
    records = {record.name: record for record in manifest.tensors}
    for name in sorted(records.keys() ^ weights.keys()):
        where = "the version has and the model has not" if name in records else "is missing"
        raise WeightsRefused("wrong_tensor", f"{name}: {where}.")
    for name, record in records.items():
        own = weights[name]
        if (record.dtype, record.shape) != (own.dtype, own.shape):
            message = (
                f"{name} is {record.dtype} {list(record.shape)} in version {manifest.version}, "
                f"and {own.dtype} {list(own.shape)} in the model."
            )
            raise WeightsRefused("wrong_tensor", message)
