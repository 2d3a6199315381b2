"""Engines that run in pods, by the images of the operator."""

from dataclasses import dataclass
from pathlib import Path

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass_agent.engines.builtin_engine import BuiltinEngine
from windlass_agent.engines.in_pods.trainer import TRAINER, TrainerKind
from windlass_agent.engines.llamacpp_engine import LlamacppEngine
from windlass_agent.engines.port import EngineKind
from windlass_agent.engines.sglang.kind import SglangEngine
from windlass_agent.engines.vllm_engine import VllmEngine

NAMES = ("builtin", "llamacpp", "sglang", "vllm")


@dataclass(frozen=True)
class PodCompleter:
    """A program of ours that completes a kind: what it starts, and the memory that it needs."""

    program: str
    own_bytes: int
    writes_weights: bool = False
    """Whether it writes the weights in the server's own form."""

    def memory_bytes(self, weights_bytes: int) -> int:
        """Bytes of memory beside weights of so many bytes.

        Whoever writes them has one tensor in memory at a time. The largest is the embedding: less
        than an eighth of a large model, and of a small one no more than that and 1 GiB.
        """
        if not self.writes_weights:
            return self.own_bytes
        return self.own_bytes + min(weights_bytes // 8, _LARGEST_TENSOR_BYTES)


# Of 256,000 tokens, 16,384 wide, with 16 bits.
_LARGEST_TENSOR_BYTES = 8 * 2**30
# llama.cpp's writes GGUF, for which it has torch for a while.
COMPLETED = {
    "llamacpp": PodCompleter("/app/llama-server", 2 * 2**30, writes_weights=True),
    "sglang": PodCompleter("python3", 2**29),
}


def engine_in_pod(
    name: str,
    python: Path,
    flags: tuple[str, ...] = (),
    program: str = "",
    trainer: pb.TrainerProcess | None = None,
) -> EngineKind:
    """The kind of engine whose container has this Python; raises ValueError for other kinds.

    `flags` are the operator's for vLLM and SGLang; `program` is what is completed, empty for the
    usual one; `trainer` is what a trainer is to be.
    """
    match name:
        case "builtin":
            return BuiltinEngine(python)
        case "llamacpp":
            program = program or COMPLETED[name].program
            return LlamacppEngine(Path(program), python, is_neighbour=True)
        case "sglang":
            program = program or COMPLETED[name].program
            return SglangEngine(Path(program), flags, python, is_neighbour=True)
        case "vllm":
            return VllmEngine(python, flags)
        case _ if name == TRAINER:
            return TrainerKind(python, trainer or pb.TrainerProcess())
    raise ValueError(f"{name!r} is no engine that runs in a pod")
