"""The log of a checkpoint: the version that its files are, and those that are to be put into them.

The file is a base, which never changes, and deltas behind it. A frame begins with two lengths and a
digest that takes in the frame before, so that a delta that was torn ends the log. A new base is a
new file that takes the old one's name.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import msgspec
import xxhash

from windlass_vllm.checkpoints.blocks import CHUNK
from windlass_vllm.checkpoints.records import FORMAT, Base, Delta
from windlass_vllm.refusal import Refused

FOLDER = ".windlass"
LOG, DRAFT = f"{FOLDER}/log", f"{FOLDER}/log.next"
_MAGIC = b"WLBLOCK1"
_NUMBER, _DIGEST = 8, 16
HEAD = 2 * _NUMBER + _DIGEST
_LONGEST_WORDS = 1 << 31


@dataclass(frozen=True)
class LoggedDelta:
    """A delta, and where its data lie in the log."""

    delta: Delta
    offset: int


@dataclass(frozen=True)
class ReadLog:
    """A log that was read: it goes on at `end`, behind a frame of this digest."""

    base: Base
    deltas: list[LoggedDelta]
    end: int
    digest: bytes
    torn: int
    """Bytes behind the last whole delta, of a write that did not end."""

    @property
    def version(self) -> str:
        """The newest version."""
        return self.deltas[-1].delta.version if self.deltas else self.base.version


@dataclass(frozen=True)
class _Frame:
    offset: int
    words: bytes
    digest: bytes
    end: int


def base_content(base: Base) -> tuple[bytes, bytes]:
    """Returns a whole log of no deltas, and the digest of its frame."""
    words = msgspec.msgpack.encode(base)
    found = frame_hash(b"", 0, len(words))
    found.update(words)
    digest = found.digest()
    return _MAGIC + frame_head(0, len(words), digest) + words, digest


def frame_head(data: int, words: int, digest: bytes) -> bytes:
    """Returns what stands before a frame's data and its words."""
    return data.to_bytes(_NUMBER, "little") + words.to_bytes(_NUMBER, "little") + digest


def frame_hash(before: bytes, data: int, words: int) -> xxhash.xxh3_128:
    """Returns a hash that is to be fed a frame's data, then its words."""
    return xxhash.xxh3_128(before + frame_head(data, words, b""))


def read_log(folder: Path) -> ReadLog:
    """Reads and judges a folder's log; raises Refused."""
    try:
        descriptor = os.open(folder / LOG, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except (FileNotFoundError, NotADirectoryError):
        raise Refused("no_checkpoint", f"{folder} is no checkpoint by block") from None
    except OSError as error:
        raise Refused("log_damaged", f"the log cannot be opened: {error.strerror}") from error
    with os.fdopen(descriptor, "rb") as file:
        size = os.fstat(descriptor).st_size
        try:
            return _read(file, size)
        except (msgspec.MsgspecError, OSError) as error:
            raise Refused("log_damaged", f"the log cannot be read: {error}") from error


def _read(file: BinaryIO, size: int) -> ReadLog:
    magic = file.read(len(_MAGIC))
    frames = _frames(file, size)
    first = next(frames, None) if magic == _MAGIC else None
    if first is None:
        raise Refused("log_damaged", "the log is cut or damaged in its first frame")
    base = msgspec.msgpack.decode(first.words, type=Base)
    if base.format != FORMAT:
        raise Refused("log_damaged", f"the log has format {base.format}")
    deltas, last = [], first
    for frame in frames:
        delta = msgspec.msgpack.decode(frame.words, type=Delta)
        deltas.append(LoggedDelta(delta, frame.offset))
        last = frame
        if delta.generation != base.generation + len(deltas):
            raise Refused("log_damaged", "the log leaves out a version")
    return ReadLog(base, deltas, last.end, last.digest, size - last.end)


def _frames(file: BinaryIO, size: int) -> Iterator[_Frame]:
    """Yields whole frames up to the first that is not."""
    digest, at = b"", len(_MAGIC)
    while size - at >= HEAD:
        head = file.read(HEAD)
        data, words = (
            int.from_bytes(head[place : place + _NUMBER], "little") for place in (0, _NUMBER)
        )
        if words > _LONGEST_WORDS or data + words > size - at - HEAD:
            return
        found = frame_hash(digest, data, words)
        for place in range(0, data, CHUNK):
            found.update(file.read(min(CHUNK, data - place)))
        text = file.read(words)
        found.update(text)
        offset, at = at + HEAD, at + HEAD + data + words
        digest = found.digest()
        if digest != head[2 * _NUMBER :]:
            return
        yield _Frame(offset, text, digest, at)
