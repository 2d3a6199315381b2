"""Files of GGUF for `llama-server`, written by a program of its own that has torch."""

import asyncio
import subprocess
import sys
from pathlib import Path

from windlass.core.telemetry import logger
from windlass_agent.engines.kept.engine import KeptFailure

_log = logger("engine")
# The exit code of the program for what has no such form; it says why.
_UNSUPPORTED = 2
_PROGRAM = (sys.executable, "-P", "-m", "windlass_agent.gguf")


class ConversionFailure(KeptFailure):
    """A model or an adapter has no such form; the message says why."""


async def write_model(folder: Path, target: Path, *, name: str) -> Path:
    """Returns the model's file, written to `target` unless the folder holds one.

    Raises ConversionFailure.
    """
    if there := sorted(folder.glob("*.gguf")):
        return there[0]
    await _write(target, f"--model={folder}", f"--name={name}")
    # A large one comes in parts, of which the server finds the others.
    return sorted(target.parent.glob(f"{target.stem}*.gguf"))[0]


async def write_adapter(folder: Path, *, base: Path, target: Path) -> None:
    """Writes an adapter's file for the model in `base`; raises ConversionFailure."""
    await _write(target, f"--model={base}", f"--adapter={folder}")


async def _write(target: Path, *flags: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *_PROGRAM, f"--to={target}", *flags,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    said = output.decode(errors="replace")
    if process.returncode == _UNSUPPORTED:
        raise ConversionFailure(said.strip().rpartition("\n")[2])
    if process.returncode:
        _log.error("conversion_failed", code=process.returncode, output=said[-4000:])
        raise ConversionFailure(f"The conversion to GGUF ended with code {process.returncode}.")
