"""The form of an archive: a tar whose every byte follows from its parts, so it can be resumed."""

import tarfile

END = bytes(2 * tarfile.BLOCKSIZE)


def header(name: str, size: int, at: int) -> bytes:
    """Bytes that stand before a part's content."""
    entry = tarfile.TarInfo(name)
    entry.size, entry.mtime, entry.mode = size, at, 0o600
    return entry.tobuf(tarfile.PAX_FORMAT)


def padding(size: int) -> bytes:
    """Bytes that stand behind a part's content."""
    return bytes(-size % tarfile.BLOCKSIZE)


def room(name: str, size: int, at: int) -> int:
    """The bytes that a part takes."""
    return len(header(name, size, at)) + size + len(padding(size))
