"""Regroups a stream of small chunks, and counts and bounds it on the way."""

from collections.abc import AsyncIterator, Callable

from windlass.core.objects.port import ObjectMismatch, ObjectTooLarge, Sha256


class Expectation:
    """Announced size and digest of an upload."""

    def __init__(self, *, max_bytes: int | None, size: int | None, sha256: Sha256 | None):
        self._size = size
        self._sha256 = sha256
        bounds = [bound for bound in (max_bytes, size) if bound is not None]
        self._most = min(bounds, default=None)

    def check_more(self, size: int) -> None:
        """Raises as soon as too much has come."""
        if self._most is None or size <= self._most:
            return
        if self._most == self._size:
            raise ObjectMismatch(f"More than the announced {self._size} bytes arrived.")
        raise ObjectTooLarge(f"The object exceeds {self._most} bytes.")

    def check_whole(self, size: int, sha256: Sha256) -> None:
        """Raises ObjectMismatch unless it is what was announced."""
        if self._size is not None and size != self._size:
            raise ObjectMismatch(f"{size} bytes arrived, but {self._size} were announced.")
        if self._sha256 is not None and sha256 != self._sha256:
            raise ObjectMismatch(
                f"The content's SHA-256 is {sha256.hex()}, announced was {self._sha256.hex()}."
            )


async def batched(
    chunks: AsyncIterator[bytes], expected: Expectation, size_of: Callable[[int], int]
) -> AsyncIterator[bytes]:
    """Chunks joined to at least `size_of(n)` bytes for the n-th batch; the last has the rest.

    Large batches, because each hop to a thread and back costs a switch of the interpreter.
    """
    pending: list[bytes] = []
    held = total = number = 0
    async for chunk in chunks:
        pending.append(bytes(chunk))
        held += len(chunk)
        total += len(chunk)
        expected.check_more(total)
        if held >= size_of(number):
            yield b"".join(pending)
            pending.clear()
            held = 0
            number += 1
    if held:
        yield b"".join(pending)
