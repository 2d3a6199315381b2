"""`make demo`: a file goes in, a fine-tuned model answers."""

import argparse
import contextlib
import json
import os
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


def main() -> int:
    """Runs the demo; the exit code says whether the fine-tuned model knows more than its base."""
    arguments = _arguments()
    console = Console(emoji=False)
    work = arguments.work.resolve()
    work.mkdir(parents=True, exist_ok=True, mode=0o711)
    began = time.monotonic()
    try:
        task = tasks.from_file(arguments.data) if arguments.data else tasks.built_in()
        folder = arguments.model or _tiny_model(work, console)
        name = _model_name(folder) if arguments.model else "tiny-llama"
        made = time.monotonic()
        with _server(work / "server", console) as windlass:
            ready = time.monotonic()
            summary = run(windlass, model=name, folder=folder, task=task, work=work)
    except (JourneyFailed, WindlassError, ConnectionFailed, ValueError, OSError) as error:
        console.print(f"[red]{error}[/red]")
        console.print(f"The server's log: {work / 'server' / 'serve.log'}")
        return 1
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
    """`windlass serve` on this machine, until the end of the block."""
    data.mkdir(parents=True, exist_ok=True, mode=0o700)
    port = _free_port()
    command = [sys.executable, "-m", "windlass", "serve", "--data", str(data), "--port", str(port)]
    with (data / "serve.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    url = f"http://127.0.0.1:{port}"
    try:
        _wait_ready(process, url)
        console.print(f"The platform answers at {url}.")
        key = (data / "owner.key").read_text().strip()
        with Windlass(url, key, timeout=300) as windlass:
            yield windlass
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)


def _wait_ready(process: "subprocess.Popen[bytes]", url: str) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise JourneyFailed(f"The server ended with code {process.returncode}.")
        with contextlib.suppress(httpx.TransportError):
            if httpx.get(f"{url}/readyz", timeout=2).status_code == httpx.codes.OK:
                return
        time.sleep(0.05)
    raise JourneyFailed(f"The server was not ready within {READY_SECONDS} s.")


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
    command = Path(sys.executable).with_name("windlass")
    lines = (
        f"{command} serve --data {server} &",
        f"{command} jobs list --data {server}",
        f"{command} chat {summary.fine_tuned_model} --data {server}",
    )
    console.print("Go on:", *lines, sep="\n  ", soft_wrap=True, highlight=False)


if __name__ == "__main__":
    sys.exit(main())
