"""The processes that train one run together; most runs have one."""

import os
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

T = TypeVar("T")
# Between two operations of a run, which may be days; who loses a peer hears of it at once.
_PATIENCE = timedelta(days=365)


def rank_here() -> int:
    """Returns the rank that torchrun gave this process; 0 without torchrun."""
    return _told("RANK", 0)


def _told(name: str, default: int) -> int:
    return int(os.environ.get(name, default))


class Ranks:
    """Place of this process among those of its run; alone, it talks to nobody."""

    def __init__(self, rank: int = 0, count: int = 1, device: str = "auto"):
        self.rank = rank
        self.count = count
        self.device = device
        self.mesh: DeviceMesh | None = None
        if count > 1:
            kind = "cpu" if device == "cpu" else "cuda"
            self.mesh = init_device_mesh(kind, (count,))

    @classmethod
    def joined(cls) -> "Ranks":
        """Meets the others that torchrun started, if it started this process."""
        if (count := _told("WORLD_SIZE", 1)) == 1:
            return cls()
        device = "cpu"
        if torch.cuda.is_available():
            device = f"cuda:{_told('LOCAL_RANK', 0)}"
            torch.cuda.set_device(device)
        backend = "gloo" if device == "cpu" else "cpu:gloo,cuda:nccl"
        dist.init_process_group(backend, timeout=_PATIENCE)
        return cls(dist.get_rank(), count, device)

    @property
    def leads(self) -> bool:
        """True for the one that is asked, and that writes."""
        return self.rank == 0

    def shared(self, word: T) -> T:
        """The leader's word, at each of them."""
        if self.count == 1:
            return word
        words: list[Any] = [word]
        dist.broadcast_object_list(words, src=0, device=torch.device("cpu"))
        found: T = words[0]
        return found

    def gathered(self, word: T) -> list[T]:
        """The words of all of them, by rank, at each of them."""
        if self.count == 1:
            return [word]
        words: list[Any] = [None] * self.count
        dist.all_gather_object(words, word)
        return words

    def norm(self, own: torch.Tensor) -> float:
        """The norm of all of them together, each with the norm of its own part."""
        if self.count == 1:
            return float(own)
        return float(torch.stack([torch.tensor(one) for one in self.gathered(float(own))]).norm())
