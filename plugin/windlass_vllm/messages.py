"""Messages between an engine's API server and its training worker, in msgpack.

Each is a frame of its own behind one with a token that both were given; nothing is pickled.
"""

import hmac
from typing import Annotated, Literal

import msgspec

from windlass_vllm.losses.datums import TinkerDatum
from windlass_vllm.optimizers.settings import OptimizerSettings

MOST_BYTES = 64 * 2**20
"""Most bytes of a message."""

Mode = Literal["hogwild", "fenced", "shadow"]
JobState = Literal["queued", "running", "succeeded", "failed", "cancelled"]


class TokenSample(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Token ids, of which the continuation alone has a loss, each by its weight."""

    context_ids: tuple[int, ...]
    continuation_ids: tuple[int, ...]
    weights: tuple[float, ...] | None = None

    @property
    def length(self) -> int:
        """Ids of both."""
        return len(self.context_ids) + len(self.continuation_ids)


class WorkerStart(msgspec.Struct, frozen=True):
    """First line of the worker's input: what it must not be told by its command line."""

    folder: str
    socket: str
    token: bytes
    key: bytes
    generation: int
    threads: int
    memory_bytes: int
    niceness: int


class Guard(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A held-out set that is measured every so many steps, and the limits that end a job."""

    samples: Annotated[tuple[TokenSample, ...], msgspec.Meta(min_length=1, max_length=1000)]
    every: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 10
    max_loss: float | None = None
    max_kl: float | None = None


class Train(msgspec.Struct, frozen=True, tag=True):
    """Trains on samples or datums, `batch` of them a step, from the step after `done`.

    In mode `fenced` the worker asks before each step, and waits until serving stands still; in mode
    `shadow` it trains a copy, and asks when that is put in place: every `place_steps`, and last.
    """

    job: str
    samples: tuple[TokenSample, ...]
    epochs: int
    batch: int
    optimizer: OptimizerSettings
    mode: Mode = "hogwild"
    save_steps: int = 0
    place_steps: int = 0
    guard: Guard | None = None
    done: int = 0
    model: str = ""
    run: str = ""
    """Folder of the run, where versions are saved; empty for none."""
    number: int = 0
    """Number of the job in its run; a name may come again long after its job has ended."""
    datums: tuple[TinkerDatum, ...] = ()
    loss: str = ""
    """Of datums, with all of its settings."""
    settings: dict[str, float] = {}
    forward_only: bool = False
    """Computes its datums, `batch` of them a pass, and changes nothing."""
    one_step: bool = False
    """All datums are one step, computed `batch` of them a pass."""
    continues: str = ""
    """Job whose weights and optimizer these two go on from; empty: whatever is there, and none."""
    clip_norm: float = 0.0
    """Most that the norm of one step's gradients may be; 0 sets no bound."""

    @property
    def steps(self) -> int:
        """Steps of the whole job."""
        if self.is_chained:
            return int(self.one_step)
        return self.epochs * -(-len(self.samples or self.datums) // self.batch)

    @property
    def is_chained(self) -> bool:
        """Returns whether other jobs may go on from it."""
        return self.forward_only or self.one_step

    @property
    def identity(self) -> str:
        """The job as a version says whose it is."""
        return f"{self.job}/{self.number}"


class PutBack(msgspec.Struct, frozen=True, tag=True):
    """Puts the newest saved version of a run in the place of the live weights."""

    job: str
    run: str


class Pass(msgspec.Struct, frozen=True, tag=True):
    """Serving stands still: the step that was asked for may be applied."""

    job: str


class Save(msgspec.Struct, frozen=True, tag=True):
    """Writes the weights as the next version of a run, made of a model's folder where it is new."""

    job: str
    model: str
    run: str


class Cancel(msgspec.Struct, frozen=True, tag=True):
    """Ends a job at its next step."""

    job: str


class Ready(msgspec.Struct, frozen=True, tag=True):
    """The worker sees the weights."""

    pid: int


class Fence(msgspec.Struct, frozen=True, tag=True):
    """Weights are about to change, and serving is to stand still for it."""

    job: str


class Applied(msgspec.Struct, frozen=True, tag=True):
    """Weights have changed, and serving may go on."""

    job: str


class VersionSaved(msgspec.Struct, frozen=True, tag=True):
    """A version is on the disk, with the state that goes on from it."""

    job: str
    step: int
    version: str


class PassComputed(msgspec.Struct, frozen=True, tag=True):
    """The results of a forward pass in float32: log-probabilities, then each datum's loss."""

    job: str
    outputs: bytes


class StepDone(msgspec.Struct, frozen=True, tag=True):
    """One step of a job, counted from 1; but in mode `shadow` its weights are in place.

    `held_out_loss` and `kl` are there where a guard measured after it.
    """

    job: str
    step: int
    loss: float
    tokens: int
    seconds: float
    held_out_loss: float | None = None
    kl: float | None = None


class JobEnded(msgspec.Struct, frozen=True, tag=True):
    """A job's end; without a job, the worker's own."""

    job: str
    state: JobState
    steps: int
    reason: str = ""
    message: str = ""
    version: str = ""
    """Version that was saved or put back."""
    kept_steps: int | None = None
    """Steps that are in the weights, where a guard put an older version back."""


ToWorker = Train | Save | PutBack | Pass | Cancel
FromWorker = Ready | Fence | Applied | VersionSaved | StepDone | PassComputed | JobEnded

_TO_WORKER = msgspec.msgpack.Decoder(ToWorker)
_FROM_WORKER = msgspec.msgpack.Decoder(FromWorker)


def frames(message: ToWorker | FromWorker, token: bytes) -> list[bytes]:
    """Returns a message as the frames that are sent."""
    return [token, msgspec.msgpack.encode(message)]


def to_worker(received: list[bytes], token: bytes) -> ToWorker | None:
    """Returns a message to the worker; None for one of others, or cut."""
    content = _content(received, token)
    try:
        return None if content is None else _TO_WORKER.decode(content)
    except msgspec.MsgspecError:
        return None


def from_worker(received: list[bytes], token: bytes) -> FromWorker | None:
    """Returns a message of the worker; None for one of others, or cut."""
    content = _content(received, token)
    try:
        return None if content is None else _FROM_WORKER.decode(content)
    except msgspec.MsgspecError:
        return None


def _content(received: list[bytes], token: bytes) -> bytes | None:
    if len(received) != 2 or not hmac.compare_digest(received[0], token):
        return None
    return received[1]
