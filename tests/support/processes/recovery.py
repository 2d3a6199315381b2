"""`windlass admin recover` as an operator runs it."""

import asyncio
import subprocess
import sys


async def recover(*arguments: str, url: str = "") -> subprocess.CompletedProcess[str]:
    """Runs beside the loop: a front in it may hold the very rows that the command waits for."""
    return await asyncio.to_thread(_recover, arguments, url)


def _recover(arguments: tuple[str, ...], url: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": "/usr/bin:/bin", "WINDLASS_DATABASE__URL": url}
    command = [sys.executable, "-m", "windlass", "admin", "recover", *arguments]
    return subprocess.run(
        command, check=False, capture_output=True, text=True, env=environment, timeout=120
    )
