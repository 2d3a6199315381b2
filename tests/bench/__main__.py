"""`python -m tests.bench [NAME ...]`: measures, prints the table, remembers each figure."""

import argparse
import asyncio
import sys
import time
from dataclasses import asdict
from importlib import import_module

from tests.bench import figures, machine, report

from windlass.core import telemetry

# By family, the folder of the module: the minutes on two cores of a whole run and of a quick one.
FAMILIES = {
    "platform": {
        "startup": (1.0, 0.3),
        "upload": (0.7, 0.2),
        "sealed_objects": (1.5, 0.4),
        "million_names": (3.0, 0.7),
        "tunnel": (3.0, 0.7),
        "confined_start": (4.0, 1.0),
        "agent_memory": (4.0, 2.0),
        "agent_engines": (1.7, 1.0),
        "idle": (3.0, 2.0),
    },
    "tenancy": {
        "audit": (1.0, 0.3),
        "revocation": (1.0, 0.3),
        "scim": (4.0, 0.5),
        "sign_in": (0.5, 0.2),
        "erasure": (8.0, 0.7),
        "authorization": (0.1, 0.1),
        "unknown_keys": (2.5, 0.8),
        "many_keys": (3.0, 1.0),
    },
    "serving": {
        "chat": (3.5, 1.0),
        "anonymous_flood": (3.5, 1.0),
        "noisy_neighbour": (3.0, 1.0),
        "cold_neighbour": (4.0, 1.5),
        "structured": (2.0, 1.0),
        "cold_chat": (2.5, 1.0),
        "engine_choice": (0.2, 0.1),
        "added_ttft": (1.2, 0.3),
        "many_streams": (1.0, 0.5),
        "cancellation": (1.0, 0.3),
        "scale_up": (0.9, 0.3),
        "prefix_affinity": (1.2, 0.4),
        "cold_adapter": (1.5, 0.5),
    },
    "jobs": {
        "job_latency": (0.7, 0.2),
        "job_creates": (2.0, 0.6),
        "job_listing": (1.0, 0.3),
        "metrics_delay": (2.0, 1.0),
        "launch": (4.0, 3.0),
    },
    "training": {
        "job_overhead": (16.0, 2.0),
        "torchtune_overhead": (16.0, 2.0),
        "warm_start": (3.0, 1.0),
        "warm_job": (4.0, 2.0),
        "resume_loss": (5.0, 1.5),
        "conversion": (0.5, 0.1),
        "block_checkpoints": (1.5, 0.3),
        "engine_training": (3.0, 1.5),
        "engine_versions": (1.0, 0.3),
    },
    "tuning": {
        "many_runs": (0.5, 0.2),
        "tuning_operations": (3.0, 0.7),
        "tuning_body": (0.5, 0.2),
        "tuning_crowd": (1.0, 0.3),
        "turns": (13.0, 1.0),
        "lost_trainer": (1.5, 0.7),
        "weight_delta": (1.0, 0.2),
    },
}
SUBJECTS = {name: family for family, subjects in FAMILIES.items() for name in subjects}


def main() -> int:
    """Exit code 0 when every goal of the run is met, 1 when one is missed."""
    arguments = _parser().parse_args()
    telemetry.configure_logging(level="WARNING")
    if arguments.report:
        print(report.write_page(figures.newest()))
        return 0
    names = arguments.names or list(SUBJECTS)
    options = figures.Options(quick=arguments.quick, pairs=arguments.pairs)
    minutes = sum(FAMILIES[SUBJECTS[name]][name][options.quick] for name in names)
    print(f"{', '.join(names)}: about {minutes:.0f} minutes", file=sys.stderr, flush=True)
    measured: list[figures.Figure] = []
    for name in names:
        measured += _run(name, options)
    print(report.table(map(asdict, measured)))
    return 0 if all(figure.met is not False for figure in measured) else 1


def _run(name: str, options: figures.Options) -> list[figures.Figure]:
    busy, began = machine.busy_cores(), time.monotonic()
    if busy > 0.2:
        print(f"note: others keep {busy:.1f} cores busy", file=sys.stderr)
    measure = import_module(f"tests.bench.subjects.{SUBJECTS[name]}.{name}").measure
    found: list[figures.Figure] = asyncio.run(measure(options))
    figures.record(found, options=options, busy=busy)
    print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    return found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*SUBJECTS, []], metavar="NAME")
    parser.add_argument("--quick", action="store_true", help="short runs, to try the scripts")
    parser.add_argument("--pairs", type=int, default=5, help="of the overheads")
    parser.add_argument("--report", action="store_true", help="write the table into the page")
    return parser


if __name__ == "__main__":
    sys.exit(main())
