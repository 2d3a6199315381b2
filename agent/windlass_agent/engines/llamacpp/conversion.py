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


async def write_model(folder: Path, draft: Path | None, *, name: str) -> list[Path]:
    """Returns the file of a model, and of one that guesses for it, each written here unless its
    folder holds one.

    Raises ConversionFailure.
    """
    targets = {folder: Path("model.gguf")} | ({draft: Path("draft.gguf")} if draft else {})
    lacking = {one: to for one, to in targets.items() if not _files(one)}
    if lacking:
        # At once: it takes longest to load torch.
        flags = (word for one, to in lacking.items() for word in (f"--model={one}", f"--to={to}"))
        await _write(*flags, f"--name={name}")
    # A large one comes in parts, of which the server finds the others.
    return [(_files(one) or _files(Path(), to.stem))[0] for one, to in targets.items()]


def _files(folder: Path, stem: str = "") -> list[Path]:
    return sorted(folder.glob(f"{stem}*.gguf"))


async def write_adapter(folder: Path, *, base: Path, target: Path) -> None:
    """Writes an adapter's file for the model in `base`; raises ConversionFailure."""
    await _write(f"--model={base}", f"--adapter={folder}", f"--to={target}")


async def _write(*flags: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *_PROGRAM, *flags,
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
