"""Containers of rows: told by the first bytes and the name of a source, and opened."""

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, BinaryIO, cast

from windlass.datasets.errors import DatasetError, Reason
from windlass.datasets.lines import Progress, ignore

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_GZIP, _ZSTD, _PARQUET = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"PAR1"
_COMPRESSED = (".gz", ".gzip", ".zst", ".zstd")
_TABLES = (".csv", ".tsv")
_BOM = b"\xef\xbb\xbf"
_HEAD_BYTES, _BUFFER_BYTES = 4096, 256 * 1024


class SourceContainer(StrEnum):
    """Format of a source, which holds its rows."""

    LINES = "jsonl"
    ARRAY = "json"
    CSV = "csv"
    PARQUET = "parquet"


def detect_container(path: Path) -> SourceContainer:
    """Says what a file holds its rows in; raises DatasetError, or OSError."""
    with opened(path) as stream:
        head = stream.read(_HEAD_BYTES)
    if head.startswith(_PARQUET):
        return SourceContainer.PARQUET
    if head.removeprefix(_BOM).lstrip()[:1] == b"[":
        return SourceContainer.ARRAY
    return SourceContainer.CSV if plain_name(path).endswith(_TABLES) else SourceContainer.LINES


def compression_of(path: Path) -> str:
    """Says how a file is compressed, by its first bytes: gzip, zstd, or not (empty)."""
    with path.open("rb") as file:
        head = file.read(len(_ZSTD))
    return "gzip" if head.startswith(_GZIP) else "zstd" if head == _ZSTD else ""


def plain_name(path: Path) -> str:
    """Returns the lower-case name of a file, without what says that it is compressed."""
    name = path.name.lower()
    for suffix in _COMPRESSED:
        name = name.removesuffix(suffix)
    return name


@contextmanager
def opened(path: Path, progress: Progress = ignore) -> Iterator[IO[bytes]]:
    """Opens a file's content, decompressed; raises DatasetError for a damaged one, or OSError.

    `progress` hears of the file's own bytes.
    """
    compression = compression_of(path)
    try:
        with io.BufferedReader(_ToldFile(path, progress), _BUFFER_BYTES) as file:
            if compression == "gzip":
                with gzip.open(cast(BinaryIO, file), "rb") as stream:
                    yield cast(IO[bytes], stream)
            elif compression == "zstd":
                arrow = require_arrow("a zstd file")
                with arrow.CompressedInputStream(arrow.PythonFile(file), "zstd") as stream:
                    yield stream
            else:
                yield file
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise _damaged(compression, error) from None
    except OSError as error:
        # Arrow has no exception of its own for a stream that it cannot decompress.
        if compression != "zstd" or error.errno is not None:
            raise
        raise _damaged(compression, error) from None


class _ToldFile(io.FileIO):
    """A file that tells of what is read of it."""

    def __init__(self, path: Path, progress: Progress):
        super().__init__(path)
        self._progress = progress

    def readinto(self, buffer: "WriteableBuffer") -> int:
        """Reads as a file does."""
        size = super().readinto(buffer) or 0
        self._progress(size)
        return size


def require_arrow(what: str) -> Any:
    """Returns the module pyarrow, which reads `what`; raises DatasetError if it is missing."""
    try:
        import pyarrow
    except ImportError:
        raise DatasetError(
            f"Reading {what} needs pyarrow: pip install 'windlass[data]'.",
            reason=Reason.NOT_READABLE,
        ) from None
    return pyarrow


def _damaged(compression: str, error: Exception) -> DatasetError:
    return DatasetError(
        f"The {compression} file is damaged or cut off: {error}.", reason=Reason.NOT_READABLE
    )
