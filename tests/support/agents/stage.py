"""Stand-in for runners, scripted by files: a real child process without a trainer.

`python stage.py FOLDER --agent A --workdir W --token-fd N` notes its start in
FOLDER/<attempt>.starts (one pid a line), its token in FOLDER/<attempt>.token, and in
FOLDER/<attempt>.share the CPUs and variables that it has,
then obeys FOLDER/<attempt>.do: `succeed`, `fail`, `crash` (with a traceback), `leave` (end without
a result, a grandchild stays). SIGTERM stops it, unless FOLDER/stubborn exists. With `--spare` at
the end it is an attempt once it has a token, and the attempt's folder leads to its own.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path


def end(workdir: Path, outcome: str, **fields: object) -> None:
    draft = workdir / "exit.draft"
    draft.write_text(json.dumps({"outcome": outcome, **fields}))
    draft.rename(workdir / "exit.json")
    raise SystemExit(0)


def main(arguments: list[str]) -> None:
    folder = Path(arguments[0])
    waits = arguments[-1] == "--spare"
    pairs = arguments[1:-1] if waits else arguments[1:]
    options = dict(zip(pairs[::2], pairs[1::2], strict=True))
    workdir = Path(options["--workdir"])
    name = workdir.name

    def stop(*_: object) -> None:
        (folder / f"{name}.asked").touch()
        if not (folder / "stubborn").exists():
            end(workdir, "stopped")

    signal.signal(signal.SIGTERM, stop)
    with os.fdopen(int(options["--token-fd"])) as file:
        token = file.read()
    if waits:
        if not token:
            return
        name = taken_by(workdir)
    (folder / f"{name}.token").write_text(token)
    share = {"environ": dict(os.environ), "cpus": sorted(os.sched_getaffinity(0))}
    (folder / f"{name}.share").write_text(json.dumps(share))
    print("begun", flush=True)
    with (folder / f"{name}.starts").open("a") as starts:
        starts.write(f"{os.getpid()}\n")
    order = folder / f"{name}.do"
    while not order.exists():
        time.sleep(0.01)
    print("done", flush=True)
    obey(order.read_text(), folder, workdir, name)


def taken_by(workdir: Path) -> str:
    """Returns the attempt whose folder is a link to this one."""
    attempts = workdir.parents[1] / "workloads"
    return next(link.name for link in attempts.iterdir() if link.resolve() == workdir)


def obey(word: str, folder: Path, workdir: Path, name: str) -> None:
    if word == "succeed":
        end(workdir, "succeeded", reported=(folder / "reported").exists())
    if word == "fail":
        end(workdir, "failed", error_code="invalid_training_file", error_message="Line 3.")
    if word == "crash":
        raise OSError(5, "Nobody foresaw this", str(workdir / "inputs" / "model"))
    if word == "leave":
        # In a group of its own, as trainers are; the session tells whose it is.
        child = subprocess.Popen(["sleep", "600"], process_group=0)
        (folder / f"{name}.grandchild").write_text(str(child.pid))
    os._exit(7)


if __name__ == "__main__":
    main(sys.argv[1:])
