"""`windlass tuning simulate`: what placement and turns would cost, before anything changes."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from windlass.cli.framework.calling import Call
from windlass.cli.framework.columns import Item, field
from windlass.cli.framework.failures import USAGE, Problem
from windlass.tuning_api.seating.scenario import BadScenario, read_scenario
from windlass.tuning_api.seating.simulation import SimulationOutcome, simulate

_MAX_BYTES = 2**20


def _seconds(key: str) -> Any:
    return lambda item: f"{item[key]:.1f} s"


_COLUMNS = {
    "POLICY": field("policy"),
    "ALL DONE": _seconds("makespan"),
    "MEAN END": _seconds("mean_finish"),
    "SWITCHES": field("switches"),
    "SWITCHING": _seconds("switching_seconds"),
    "BUSY": lambda item: f"{item['busy_share']:.0%}",
    "LONGEST WAIT": _seconds("longest_wait_seconds"),
}


def simulate_turns(
    call: Call,
    file: Annotated[
        Path, typer.Argument(help="YAML or JSON: `devices`, `workloads` and, if need be, `turns`.")
    ],
) -> None:
    """Says what placement and turns of a file would cost under each policy; asks no server."""
    outcomes = simulate(_scenario(file))
    for name, why in outcomes[0].refused.items():
        call.out.note(f"{name} never fits: {why}")
    call.out.items([_item(one) for one in outcomes], _COLUMNS)


def _scenario(file: Path) -> Any:
    import yaml

    try:
        with file.open("rb") as opened:
            content = opened.read(_MAX_BYTES + 1)
        if len(content) > _MAX_BYTES:
            raise Problem(f"{file} is larger than {_MAX_BYTES} bytes.", USAGE)
        return read_scenario(yaml.safe_load(content))
    except (OSError, yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise Problem(f"{file} cannot be read: {error}", USAGE) from error
    except BadScenario as error:
        raise Problem(f"{file} is no scenario: {error}.", USAGE) from error


def _item(outcome: SimulationOutcome) -> Item:
    longest = max((one.longest_wait_seconds for one in outcome.workloads), default=0.0)
    return {"id": outcome.policy, **asdict(outcome), "longest_wait_seconds": longest}
