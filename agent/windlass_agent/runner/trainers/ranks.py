"""Agreement between the ranks of a training; imported in the trainer's process only."""

import faulthandler
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import distributed

from windlass_agent.runner.protocol import tether

_held: list[Any] = []


def run(main: Callable[[], None]) -> None:
    """Runs the whole of a trainer's process; one that torchrun started ends at once afterwards.

    Taken apart in order it may never end (torch 2.13): when DDP is the last to let go of gloo's
    group, it holds Python's lock while the group waits for a thread that waits for the lock.
    """
    # Of a library that crashes, its frames in the log are all that an operator has.
    faulthandler.enable()
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        main()
        return
    # torchrun gives each process a session of its own, where nobody would look for it.
    tether.tie()
    status = 0
    try:
        main()
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            # As Python itself does.
            print(end.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def hold_group() -> None:
    """Keeps the group for as long as the process lives, whatever else lets go of it."""
    if distributed.is_initialized():
        _held.append(distributed.group.WORLD)


def highest_of(said: int, args: Any) -> int:
    """The highest number of any process; one that leaves alone would block the others."""
    number = torch.tensor(float(said), device=args.device)
    distributed.all_reduce(number, distributed.ReduceOp.MAX)
    return int(number.item())


def gather_random_states(checkpoint: Path, args: Any) -> None:
    """Brings every process's random state to the first one, whose node alone uploads.

    Returns there once all have saved theirs.
    """
    own = checkpoint / _name(args.process_index)
    is_first = args.process_index == 0
    states: list[Any] | None = [None] * args.world_size if is_first else None
    distributed.gather_object(own.read_bytes(), states)
    for rank, state in enumerate(states or ()):
        path = checkpoint / _name(rank)
        if not path.exists():
            path.write_bytes(state)


def _name(rank: int) -> str:
    return f"rng_state_{rank}.pth"
