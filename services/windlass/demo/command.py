"""`make demo`: a file goes in, a fine-tuned model answers."""

import argparse
import json
import time
from dataclasses import asdict
from pathlib import Path

from windlass import modelfiles
from windlass.client import ConnectionFailed, WindlassError
from windlass.client.resources.models import model_files
from windlass.demo import task as tasks
from windlass.demo.closing import closing
from windlass.demo.journey import JourneyFailed, travel
from windlass.demo.narrator import Narrator
from windlass.demo.server import ServerFailed, server_of
from windlass.demo.tiny_model import make_tiny_model

_FAILURES = (JourneyFailed, ServerFailed, WindlassError, ConnectionFailed, ValueError, OSError)


def run() -> int:
    """Runs the demo; the exit code says whether the fine-tuned model knows more than its base."""
    arguments = _arguments()
    narrator = Narrator()
    try:
        return _run(arguments, narrator)
    except _FAILURES as error:
        narrator.say(str(error), style="red")
        for note in getattr(error, "__notes__", ()):
            narrator.say(note)
        return 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="windlass.demo", description=__doc__)
    parser.add_argument("--model", type=Path, help="a model folder of your own")
    parser.add_argument("--data", type=Path, help="a chat or preference JSONL of your own")
    parser.add_argument("--work", type=Path, default=Path("data/demo"))
    arguments = parser.parse_args()
    if arguments.model and not arguments.data:
        parser.error("--model needs --data: what should your model learn?")
    return arguments


def _run(arguments: argparse.Namespace, narrator: Narrator) -> int:
    began = time.monotonic()
    work = arguments.work.resolve()
    task = tasks.from_file(arguments.data) if arguments.data else tasks.built_in()
    if arguments.model:
        modelfiles.check_files(model_files(arguments.model))
    if task.note:
        narrator.say(task.note)
    work.mkdir(parents=True, exist_ok=True, mode=0o711)
    with server_of(work / "server", narrator) as server:
        # It starts meanwhile.
        folder = arguments.model or _tiny_model(work, narrator)
        made = time.monotonic()
        with narrator.waiting("starting the platform"):
            server.wait_ready()
        narrator.say(f"The platform answers at {server.url}.")
        ready = time.monotonic()
        with server.client() as windlass:
            name = _name(folder.resolve()) if arguments.model else "tiny-llama"
            summary = travel(windlass, narrator, model=name, folder=folder, task=task, work=work)
    summary.seconds |= {
        "base_model": round(made - began, 2),
        "server_start": round(ready - made, 2),
        "total": round(time.monotonic() - began, 2),
    }
    path = work / "summary.json"
    path.write_text(json.dumps(asdict(summary), indent=2) + "\n")
    narrator.say(*closing(summary, path, data=server.data, port=server.free_port))
    return 0 if summary.right_after > summary.right_before else 1


def _tiny_model(work: Path, narrator: Narrator) -> Path:
    narrator.say(
        "The base model is a tiny Llama with a tokenizer of its own, trained on this machine."
    )
    with narrator.waiting("training the base model"):
        return make_tiny_model(work / "base")


def _name(folder: Path) -> str:
    try:
        return modelfiles.id_of_folder(folder)
    except ValueError:  # no letter of the folder's name may be in an id
        return "base-model"
