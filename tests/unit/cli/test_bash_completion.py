"""Words with colons, which bash takes for several."""

import os
import pty
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from typer._completion_shared import get_completion_script

from windlass.cli.framework.bash_completion import VARIABLE, joined

NAME = "ft:tiny:acme:ticket:x1"
PROGRAM = f"""#!{sys.executable}
import os, sys
if "_WINDLASS_COMPLETE" not in os.environ:
    print("LINE", *sys.argv[1:])
    sys.exit()
from windlass.cli.framework import completion
completion._offers = lambda ctx, path, incomplete, *about, **how: [
    (name, "") for name in ("{NAME}", "feather") if name.startswith(incomplete)
]
from windlass.cli.main import main
main()
"""


@pytest.mark.parametrize(
    ("pieces", "words"),
    [
        (["get", "ft", ":", "ti"], ["get", "ft:ti"]),
        (["get", "ft", ":"], ["get", "ft:"]),
        (["get", "ft", ":", "a", ":", "b", "-o", ""], ["get", "ft:a:b", "-o", ""]),
        (["get", "ft", "::", "b"], ["get", "ft::b"]),
        (["get", "fe"], ["get", "fe"]),
        ([""], [""]),
    ],
)
def test_pieces_are_put_together(pieces: list[str], words: list[str]) -> None:
    assert joined(pieces) == words


@pytest.mark.parametrize(
    ("typed", "line"),
    [
        ("models get ft:ti", f"models get {NAME}"),
        ("models get ft:", f"models get {NAME}"),
        ("models get f", "models get f"),
        ("models get fe", "models get feather"),
        ("jobs create --model ft:tiny:ac", f"jobs create --model {NAME}"),
        (f"models delete {NAME} --ye", f"models delete {NAME} --yes"),
    ],
)
def test_bash_completes_names_with_colons(tmp_path: Path, typed: str, line: str) -> None:
    """In a real bash: how it breaks words and what it replaces is its own affair."""
    program, rc = tmp_path / "windlass", tmp_path / "rc"
    program.write_text(PROGRAM)
    program.chmod(0o755)
    rc.write_text(get_completion_script(prog_name="windlass", complete_var=VARIABLE, shell="bash"))
    ours, theirs = pty.openpty()
    bash = subprocess.Popen(
        ["bash", "--noprofile", "--rcfile", str(rc), "-i"],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin", "HOME": str(tmp_path), "TERM": "dumb"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    os.write(ours, f"windlass {typed}\t\nexit\n".encode())
    shown = b""
    killer = threading.Timer(60, bash.kill)
    killer.start()
    try:
        while piece := os.read(ours, 4096):
            shown += piece
    except OSError:  # how Linux says that the other end is closed
        pass
    finally:
        killer.cancel()
        os.close(ours)
        bash.wait(60)
    assert f"\r\nLINE {line}\r\n" in shown.decode() or f"\nLINE {line}\r\n" in shown.decode()


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_get_whole_names(tmp_path: Path, shell: str) -> None:
    """They hand a word over whole, and replace all of it."""
    program = tmp_path / "windlass"
    program.write_text(PROGRAM)
    program.chmod(0o755)
    done = subprocess.run(
        [str(program)],
        env={
            VARIABLE: f"complete_{shell}",
            "_TYPER_COMPLETE_ARGS": "windlass models get ft:ti",
            "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    # The colon parts a completion from its description in zsh.
    assert (NAME.replace(":", r"\\:") if shell == "zsh" else NAME) in done.stdout
