"""A program in another container of the pod, whose image has nothing of ours.

Both containers see one folder. The program's container runs `SCRIPT`, plain sh, which starts what
is asked for there: `N.start` has a command, a word on each line; the program goes on until that
file is gone, writes to the pipe `N.out`, and leaves its status in `N.exit`.
"""

import asyncio
import contextlib
import os
import secrets
from collections.abc import Sequence
from pathlib import Path

from windlass_agent.engines.kept.engine import KeptFailure

# Of what an earlier life of ours has left.
CLEAR_SECONDS = 20.0
_POLL_SECONDS = 0.05
_LINE_BYTES = 2**20
# Without `$(` and two of `$`, which Kubernetes reads as its own.
SCRIPT = r"""
cd "$0" || exit 1
trap 'exit 0' TERM INT
keep() {
  name=$1
  set --
  while IFS= read -r word; do set -- "$@" "$word"; done < "$name.start"
  (
    "$@" > "$name.out" 2>&1 &
    echo $! > "$name.pid.part" && mv "$name.pid.part" "$name.pid"
    wait $!
    echo $? > "$name.code" && mv "$name.code" "$name.exit"
  ) &
  # Without its files nobody is left who asked for it.
  while [ -e "$name.seen" ] && [ ! -e "$name.pid" ]; do sleep 0.1; done
  [ -e "$name.pid" ] || return
  read -r pid < "$name.pid"
  while [ -e "$name.start" ] && [ ! -e "$name.exit" ]; do sleep 0.1; done
  [ ! -e "$name.seen" ] || [ -e "$name.exit" ] || kill "$pid"
  while [ -e "$name.seen" ] && [ ! -e "$name.exit" ]; do
    [ ! -e "$name.kill" ] || kill -9 "$pid"
    sleep 0.1
  done
}
# What an earlier life of this container had has ended with it.
for seen in *.seen; do
  name=${seen%.seen}
  if [ -e "$seen" ] && [ ! -e "$name.exit" ]; then echo 137 > "$name.exit"; fi
done
while :; do
  for start in *.start; do
    name=${start%.start}
    if [ -e "$start" ] && [ ! -e "$name.seen" ]; then
      : > "$name.seen"
      keep "$name" &
    fi
  done
  sleep 0.1
done
"""


def script(folder: Path) -> list[str]:
    """The command of the container whose programs are started by this folder."""
    return ["/bin/sh", "-c", SCRIPT, str(folder)]


class NeighbourProgram:
    """A program that was asked for; steered like a process of our own."""

    def __init__(self, files: Path, output: asyncio.StreamReader, writer: int):
        """`files` is the path of its files but for their endings; `writer` is ours to close."""
        self._files = files
        self._writer = writer
        self.stdout = output

    @classmethod
    async def start(cls, command: Sequence[str], folder: Path) -> "NeighbourProgram":
        """Asks for a program; raises OSError, and ValueError for a word of several lines."""
        if any("\n" in word for word in command):
            raise ValueError("a word of a command has one line")
        files = folder / secrets.token_hex(8)
        pipe = files.with_suffix(".out")
        os.mkfifo(pipe, 0o600)
        reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        # Without a writer of ours it would end before the program has opened it.
        writer = os.open(pipe, os.O_WRONLY)
        output = asyncio.StreamReader(limit=_LINE_BYTES)
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(output), os.fdopen(reading, "rb", buffering=0)
        )
        draft = files.with_suffix(".part")
        draft.write_text("".join(f"{word}\n" for word in command))
        draft.rename(files.with_suffix(".start"))
        return cls(files, output, writer)

    @property
    def returncode(self) -> int | None:
        """Status once it has ended, else None; a signal that ended it is told as shells do."""
        with contextlib.suppress(OSError, ValueError):
            code = int(self._files.with_suffix(".exit").read_text())
            self._release()
            return code
        return None

    async def wait(self) -> int:
        """Waits for its end; returns its status."""
        while (code := self.returncode) is None:  # noqa: ASYNC110
            await asyncio.sleep(_POLL_SECONDS)
        return code

    def terminate(self) -> None:
        """Asks it to end."""
        self._files.with_suffix(".start").unlink(missing_ok=True)

    def kill(self) -> None:
        """Ends it at once."""
        self._files.with_suffix(".kill").touch()
        self.terminate()

    def _release(self) -> None:
        if self._writer >= 0:
            os.close(self._writer)
            self._writer = -1


async def clear(folder: Path) -> None:
    """Ends what an earlier life of ours has left, and removes its files.

    Raises KeptFailure for a program that does not end.
    """
    left = [path.with_suffix("") for path in folder.glob("*.seen")]
    for path in folder.glob("*.start"):
        path.unlink(missing_ok=True)
    try:
        async with asyncio.timeout(CLEAR_SECONDS):
            for files in left:
                files.with_suffix(".kill").touch()
                while not files.with_suffix(".exit").exists():  # noqa: ASYNC110
                    await asyncio.sleep(_POLL_SECONDS)
    except TimeoutError as error:
        raise KeptFailure("the program of an earlier life does not end") from error
    for path in folder.iterdir():
        if not path.is_dir():
            path.unlink(missing_ok=True)
