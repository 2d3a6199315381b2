"""Stand-in for runners in pods, without a trainer, scripted by `/work/do`: plain Python.

`succeed`, `fail`, `exit N`, `memory` (ask for more than there is), `disk` (the same), `chat N`
(N lines, then wait on). SIGTERM stops it after a last line, unless /work/stubborn exists. It
never speaks to its agent, so the agent must tell its last word.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path


def end(message: Path, outcome: str, code: int = 0, **fields: object) -> None:
    message.write_text(json.dumps({"outcome": outcome, "reported": False, **fields}))
    raise SystemExit(code)


def main(arguments: list[str]) -> None:
    options = dict(zip(arguments[::2], arguments[1::2], strict=True))
    workdir, message = Path(options["--workdir"]), Path(options["--exit-message"])

    def stop(*_: object) -> None:
        print("saving", flush=True)
        if not (workdir / "stubborn").exists():
            end(message, "stopped", 143)

    signal.signal(signal.SIGTERM, stop)
    print("begun", flush=True)
    order = workdir / "do"
    while True:
        while not order.exists():
            time.sleep(0.05)
        words = order.read_text().split()
        order.unlink()
        obey(words, workdir, message)


def obey(words: list[str], workdir: Path, message: Path) -> None:
    print(*words, flush=True)
    match words:
        case ["succeed"]:
            end(message, "succeeded", trained_tokens=5)
        case ["fail"]:
            end(message, "failed", 1, error_code="invalid_training_file", error_message="Line 3.")
        case ["exit", code]:
            os._exit(int(code))
        case ["memory"]:
            held = []
            while True:
                held.append(b"x" * 2**24)
        case ["disk"]:
            with (workdir / "big").open("wb") as file:
                while True:
                    file.write(os.urandom(2**20))
                    file.flush()
        case ["chat", count]:
            for number in range(int(count)):
                print(f"line {number} " + "." * 80)
            sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
