"""`windlass-vllm sync FOLDER` and `windlass-vllm diagnose FOLDER`."""

import argparse
import sys
from pathlib import Path

from windlass_vllm.checkpoints.diagnosis import FolderDiagnosis, diagnose_folder, sync_folder
from windlass_vllm.refusal import Refused

_SHOWN = 8


def main(arguments: list[str] | None = None) -> int:
    """Runs the command; returns 0 for a whole checkpoint, 1 for a damaged one, 2 if refused."""
    chosen = _parser().parse_args(arguments)
    try:
        if chosen.command == "sync":
            diagnosis, written = sync_folder(chosen.folder, chosen.protect)
            print(f"written: {written} bytes")
        else:
            diagnosis = diagnose_folder(chosen.folder)
    except Refused as error:
        print(f"{error.reason}: {error}", file=sys.stderr)
        return 2
    print("\n".join(_lines(diagnosis)))
    return 0 if diagnosis.whole else 1


def _lines(diagnosis: FolderDiagnosis) -> list[str]:
    lines = [
        f"version: {diagnosis.version} (generation {diagnosis.generation})",
        f"in the files: {diagnosis.settled}; in the log alone: {diagnosis.unsettled} versions",
    ]
    if diagnosis.torn:
        lines.append(f"unfinished: {diagnosis.torn} bytes of a write that did not end")
    for name, blocks in diagnosis.damaged.items():
        shown = ", ".join(map(str, blocks[:_SHOWN])) + (" …" if len(blocks) > _SHOWN else "")
        lines.append(f"damaged: {name}" + (f", {len(blocks)} blocks: {shown}" if blocks else ""))
    return [*lines, "digests: right" if diagnosis.whole else "digests: wrong"]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="windlass-vllm", description="Checkpoints by block.")
    commands = parser.add_subparsers(dest="command", required=True)
    sync = commands.add_parser("sync", help="finish or drop what a crash left; check all digests")
    diagnose = commands.add_parser("diagnose", help="say what is there; write nothing")
    for command in (sync, diagnose):
        command.add_argument("folder", type=Path)
    sync.add_argument("--protect", type=Path, action="append", default=[], metavar="FOLDER")
    return parser


if __name__ == "__main__":
    sys.exit(main())
