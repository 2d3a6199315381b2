"""Attaches this terminal to a command that runs elsewhere."""

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from windlass.cli.framework.failures import Problem
from windlass.client.errors import ConnectionFailed
from windlass.client.resources.clusters import Kubernetes
from windlass.client.resources.pod_exec import STDERR, CommandFailed, Exec, executing

READ_BYTES = 32 * 1024
# Pieces of standard input that wait for the network.
AHEAD = 16


def attached(
    kubernetes: Kubernetes,
    pod: str,
    container: str,
    command: list[str],
    *,
    stdin: bool,
    tty: bool,
) -> int:
    """Runs a command at this terminal; its exit code. Raises Problem, WindlassError."""

    async def run() -> int:
        options = {"stdin": stdin, "tty": tty}
        async with executing(kubernetes, pod, container, command, **options) as running:
            with _resizing(running, tty):
                feeding = asyncio.create_task(_feed(running)) if stdin else None
                try:
                    return await running.run(_show)
                finally:
                    if feeding is not None:
                        feeding.cancel()

    try:
        with _raw(tty):
            return asyncio.run(run())
    except CommandFailed as error:
        raise Problem(str(error)) from error


async def _show(channel: int, data: bytes) -> None:
    out = sys.stderr.buffer if channel == STDERR else sys.stdout.buffer
    out.write(data)
    out.flush()


async def _feed(running: Exec) -> None:
    loop = asyncio.get_running_loop()
    pieces: asyncio.Queue[bytes] = asyncio.Queue(AHEAD)

    def read() -> None:
        # A thread of its own that nobody waits for: a read of a terminal cannot be ended.
        with suppress(RuntimeError, OSError, asyncio.CancelledError):
            while True:
                piece = os.read(sys.stdin.fileno(), READ_BYTES)
                asyncio.run_coroutine_threadsafe(pieces.put(piece), loop).result()
                if not piece:
                    return

    threading.Thread(target=read, daemon=True, name="stdin").start()
    # The receiving side tells why sending failed.
    with suppress(ConnectionFailed, OSError):
        while piece := await pieces.get():
            await running.send(piece)
        await running.end_input()


@contextmanager
def _raw(tty: bool) -> Iterator[None]:
    """Every key goes to the command, Ctrl-C as well, until the block ends."""
    if not tty:
        yield
        return
    import termios
    import tty as terminal

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    terminal.setraw(descriptor)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


@contextmanager
def _resizing(running: Exec, tty: bool) -> Iterator[None]:
    """Tells the command the terminal's size, now and whenever it changes."""
    if not tty:
        yield
        return
    loop = asyncio.get_running_loop()
    tasks: set[asyncio.Task[None]] = set()

    def tell() -> None:
        # Of the terminal itself: what COLUMNS and LINES say may be of another one.
        columns, rows = os.get_terminal_size(sys.stdin.fileno())
        task = loop.create_task(running.resize(columns, rows))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    loop.add_signal_handler(signal.SIGWINCH, tell)
    tell()
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGWINCH)
