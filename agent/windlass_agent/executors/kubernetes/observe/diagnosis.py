"""Diagnosis of an attempt, and its wording. Pure."""

from dataclasses import dataclass
from typing import Literal

from windlass.api.clusters.v1 import clusters_pb2 as pb

# Which of an operator's patiences applies.
PatienceKind = Literal["", "setup", "start", "schedule"]
ASK = "Ask the operator of the cluster."
_LONGEST = 1500


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """Diagnosis of an attempt; one with a `patience` becomes a failure if it lasts that long."""

    phase: "pb.Phase.ValueType"
    reason: str = ""
    message: str = ""
    patience: PatienceKind = ""

    @property
    def failed(self) -> bool:
        """True if the diagnosis is final."""
        return self.phase == pb.PHASE_FAILED


def failure(reason: str, message: str) -> Diagnosis:
    """Diagnosis of a failed attempt."""
    return Diagnosis(phase=pb.PHASE_FAILED, reason=reason, message=message)


def waits(reason: str, message: str, patience: PatienceKind = "") -> Diagnosis:
    """Diagnosis of an attempt that waits for a place."""
    return Diagnosis(phase=pb.PHASE_PENDING, reason=reason, message=message, patience=patience)


def starts(reason: str, message: str) -> Diagnosis:
    """Diagnosis of an attempt that has a place but cannot start yet."""
    return Diagnosis(phase=pb.PHASE_STARTING, reason=reason, message=message, patience="start")


def unstartable(said: str, *, failed: bool = False) -> Diagnosis:
    """Diagnosis of an attempt whose container cannot be created or run."""
    message = (
        f"Its container cannot be started: {sentence(said)} The operator of the cluster "
        "must correct the pod template."
    )
    return failure("ContainerConfig", message) if failed else starts("ContainerConfig", message)


def sentence(text: str) -> str:
    """Foreign text on one line, truncated, ending with a full stop."""
    text = " ".join(text.split())
    if len(text) > _LONGEST:
        text = f"{text[:_LONGEST]}…"
    return text if not text or text[-1] in ".!?…" else f"{text}."
