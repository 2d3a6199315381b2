"""Lines out of a stream of bytes, of whatever length an object has."""

from collections.abc import AsyncIterator

# etcd takes no object above 1.5 MiB; a list of managed fields may make JSON of it longer.
_LONGEST = 16 * 1024 * 1024


async def split_lines(parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Each whole line without its end; what a cut leaves unfinished is dropped.

    Raises ValueError at a line above 16 MiB.
    """
    rest = bytearray()
    async for part in parts:
        searched = len(rest)
        rest += part
        start = 0
        while (end := rest.find(b"\n", max(start, searched))) >= 0:
            if end > start:
                yield bytes(rest[start:end])
            start = end + 1
        del rest[:start]
        if len(rest) > _LONGEST:
            raise ValueError("a line of the stream is above 16 MiB")
