"""What the processes of one training agree on; imported by the trainer's process alone."""

from pathlib import Path
from typing import Any

import torch
from torch import distributed


def any_of(said: bool, args: Any) -> bool:
    """Whether any process says so: whoever leaves alone lets the others wait for ever."""
    flag = torch.tensor(float(said), device=args.device)
    distributed.all_reduce(flag, distributed.ReduceOp.MAX)
    return bool(flag.item())


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
