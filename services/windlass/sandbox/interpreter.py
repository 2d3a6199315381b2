"""Files of a Python interpreter: the only files of this machine that a sandbox shows."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from windlass.core.account import ENVIRONMENT, Account

_ASK = """
import json, os, sys
print(json.dumps({
    "program": os.path.realpath(sys.executable),
    "library": os.path.dirname(os.path.realpath(os.__file__)),
    "folder": sys.platlibdir,
    "version": "python%d.%d" % sys.version_info[:2],
}))
"""
# `name => /path (0x…)`, or the loader's own path.
_OBJECT = re.compile(r"(/\S+) \(0x")
_SECONDS = 30


class Unreadable(Exception):
    """No interpreter that the account may run; the message says which were tried, and why not."""


@dataclass(frozen=True)
class Interpreter:
    """Paths on this machine: the program, its standard library, what the loader needs for both."""

    program: str
    library: str
    folder: str
    version: str
    objects: tuple[str, ...] = ()


def find(account: Account) -> Interpreter:
    """Returns the first interpreter that the account may read: ours, or the system's.

    Raises Unreadable.
    """
    hindrances: list[str] = []
    for program in _candidates():
        try:
            return _look(program, account)
        except (OSError, subprocess.SubprocessError, msgspec.DecodeError) as error:
            hindrances.append(f"{program}: {error}")
    raise Unreadable("; ".join(hindrances))


def _candidates() -> Iterator[str]:
    yield str(Path(getattr(sys, "_base_executable", sys.executable)).resolve())
    if system := shutil.which("python3", path="/usr/local/bin:/usr/bin:/bin"):
        yield system


def _look(program: str, account: Account) -> Interpreter:
    found = msgspec.json.decode(_output(account, program, "-I", "-S", "-c", _ASK), type=Interpreter)
    # What starts may stand in a folder that is not to be entered.
    _output(account, "test", "-r", found.program, "-a", "-r", found.library)
    extensions = Path(found.library).glob("lib-dynload/*.so")
    listed = _output(account, "ldd", found.program, *map(str, extensions), check=False)
    return replace(found, objects=tuple(sorted(set(_OBJECT.findall(listed)))))


def _output(account: Account, *command: str, check: bool = True) -> str:
    done = subprocess.run(
        account.becoming(*command),
        check=check,
        capture_output=True,
        text=True,
        cwd="/",
        env=ENVIRONMENT,
        stdin=subprocess.DEVNULL,
        timeout=_SECONDS,
    )
    return done.stdout
