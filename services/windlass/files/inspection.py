"""Inspects a stored fine-tuning file as a stream: its format, its examples, its first fault."""

import asyncio

from windlass.core.objects import ObjectStore
from windlass.datasets import DatasetError, Inspector
from windlass.files.domain import InspectionResult


async def inspect(objects: ObjectStore, key: str) -> InspectionResult:
    """The verdict on a stored object; memory stays bounded whatever its size."""
    inspector = Inspector()
    try:
        async for chunk in objects.get(key):
            # Decoding holds the processor; the event loop must not wait for it.
            await asyncio.to_thread(inspector.feed, chunk)
        summary = inspector.finish()
    except DatasetError as error:
        where = f"Line {error.line}: " if error.line else ""
        return InspectionResult(status="error", details=f"{where}{error.message}")
    return InspectionResult(status="processed", format=summary.format, examples=summary.examples)
