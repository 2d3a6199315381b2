"""Waits for file descriptors within the event loop."""

import asyncio


async def readable(descriptor: int) -> None:
    """Returns once a descriptor is readable."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(descriptor, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(descriptor)
