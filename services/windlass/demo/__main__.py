"""`make demo`: a file goes in, a fine-tuned model answers."""

import argparse
import contextlib
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import httpx
from rich.console import Console

from windlass.client import ConnectionFailed, Windlass, WindlassError
from windlass.demo import task as tasks
from windlass.demo.journey import JourneyFailed, JourneySummary, run
from windlass.demo.tiny_model import make_tiny_model

READY_SECONDS = 120
STOP_SECONDS = 60
SERVER_LOG = "serve.log"
OWNER_KEY = "owner.key"


def main() -> int:
    """Runs the demo; the exit code says whether the fine-tuned model knows more than its base."""
    arguments = _arguments()
    console = Console(emoji=False)
    work = arguments.work.resolve()
    work.mkdir(parents=True, exist_ok=True, mode=0o711)
    began = time.monotonic()
    # A closed terminal ends the server too, and not only the one that follows it.
    signal.signal(signal.SIGHUP, signal.default_int_handler)
    try:
        task = tasks.from_file(arguments.data) if arguments.data else tasks.built_in()
        folder = arguments.model or _tiny_model(work, console)
        name = _model_name(folder) if arguments.model else "tiny-llama"
        made = time.monotonic()
        with _server(work / "server", console) as windlass:
            ready = time.monotonic()
            summary = run(windlass, model=name, folder=folder, task=task, work=work)
    except (JourneyFailed, WindlassError, ConnectionFailed, ValueError, OSError) as error:
        console.print(str(error), style="red", markup=False)
        if (log := work / "server" / SERVER_LOG).exists():
            console.print(f"The server's log: {log}", soft_wrap=True)
        return 1
    except KeyboardInterrupt:
        console.print("Stopped.")
        return 130
    summary.seconds |= {
        "base_model": round(made - began, 2),
        "server_start": round(ready - made, 2),
        "total": round(time.monotonic() - began, 2),
    }
    _finish(summary, work, console)
    return 0 if summary.right_after > summary.right_before else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="windlass.demo", description=__doc__)
    parser.add_argument("--model", type=Path, help="a model folder of your own")
    parser.add_argument("--data", type=Path, help="a chat JSONL of your own")
    parser.add_argument("--work", type=Path, default=Path("data/demo"))
    arguments = parser.parse_args()
    if arguments.model and not arguments.data:
        parser.error("--model needs --data: what should your model learn?")
    return arguments


def _tiny_model(work: Path, console: Console) -> Path:
    console.print(
        "Making a tiny base model (Llama architecture, own tokenizer), trained in seconds."
    )
    return make_tiny_model(work / "base")


def _model_name(folder: Path) -> str:
    kept = "".join(c if c.isalnum() or c in "._-" else "-" for c in folder.resolve().name)
    return kept.strip("._-").lower() or "base-model"


@contextlib.contextmanager
def _server(data: Path, console: Console) -> Iterator[Windlass]:
    """Yields a client of the server of `data`: one that runs, or one until the end of the block."""
    data.mkdir(parents=True, exist_ok=True, mode=0o700)
    with contextlib.ExitStack() as stack:
        url = _running(data)
        if url:
            console.print(f"The platform of {data} answers already at {url}.", soft_wrap=True)
        else:
            url = stack.enter_context(_started(data))
            console.print(f"The platform answers at {url}.")
        key = (data / OWNER_KEY).read_text().strip()
        yield stack.enter_context(Windlass(url, key, timeout=300))


def _running(data: Path) -> str:
    """Returns the address of the data folder's server if it is up, else nothing."""
    with contextlib.suppress(OSError, httpx.HTTPError, httpx.InvalidURL):
        url = (data / "address").read_text().strip()
        key = (data / OWNER_KEY).read_text().strip()
        # Another server may listen there by now, which does not know this key.
        answer = httpx.get(f"{url}/v1/me", headers={"Authorization": f"Bearer {key}"}, timeout=5)
        return url if answer.is_success else ""
    return ""


@contextlib.contextmanager
def _started(data: Path) -> Iterator[str]:
    """Runs `windlass serve` for the block."""
    port = _free_port()
    command = [sys.executable, "-m", "windlass", "serve", "--data", str(data), "--port", str(port)]
    path = data / SERVER_LOG
    with path.open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    try:
        _wait_ready(process, f"http://127.0.0.1:{port}", path)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)


def _wait_ready(process: "subprocess.Popen[bytes]", url: str, log: Path) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise JourneyFailed(f"The server ended: {_last_words(log)}")
        with contextlib.suppress(httpx.TransportError):
            if httpx.get(f"{url}/readyz", timeout=2).status_code == httpx.codes.OK:
                return
        time.sleep(0.05)
    raise JourneyFailed(f"The server was not ready within {READY_SECONDS} s.")


def _last_words(log: Path) -> str:
    """Returns the last line of a log that is no traceback's."""
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1].strip() if lines else "it said nothing."


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _finish(summary: JourneySummary, work: Path, console: Console) -> None:
    path = work / "summary.json"
    path.write_text(json.dumps(asdict(summary), indent=2) + "\n")
    console.print()
    console.print(
        f"[bold]{summary.right_before} of {summary.questions} right before, "
        f"{summary.right_after} after[/bold], in {summary.seconds['total']:.0f} s "
        f"({summary.seconds['fine_tune']:.0f} s of them the fine-tuning job)."
    )
    server = work / "server"
    console.print(f"Summary: {path}\nData:    {server}", soft_wrap=True)
    command = shlex.quote(str(Path(sys.executable).with_name("windlass")))
    data = shlex.quote(str(server))
    console.print("Go on: start the platform in another terminal,", style="bold")
    _print_commands(console, f"{command} serve --data {data}")
    console.print("and once it has said where it answers:", style="bold")
    _print_commands(
        console,
        f"{command} jobs list --data {data}",
        f"{command} chat {shlex.quote(summary.fine_tuned_model)} --data {data}",
    )


def _print_commands(console: Console, *lines: str) -> None:
    console.print(*lines, sep="\n", soft_wrap=True, highlight=False, markup=False)


if __name__ == "__main__":
    sys.exit(main())
