"""Records and states of fine-tuning jobs, and the legal transitions. Pure."""

from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Any

from windlass.jobs.domain.evaluation import Evaluation, EvaluationResult
from windlass.jobs_api.extension import Resources


class JobState(IntEnum):
    """`JobState` of the contract, by its numbers."""

    VALIDATING = 1
    QUEUED = 2
    STARTING = 3
    RUNNING = 4
    FINALIZING = 5
    PAUSING = 6
    PAUSED = 7
    CANCELLING = 8
    SUCCEEDED = 9
    FAILED = 10
    CANCELLED = 11


S = JobState
TERMINAL = frozenset({S.SUCCEEDED, S.FAILED, S.CANCELLED})
# An attempt may be at work; with a cluster, what it reports is accepted.
ACTIVE = frozenset({S.QUEUED, S.STARTING, S.RUNNING, S.PAUSING, S.CANCELLING})

# The whole machine. A state may also stay as it is.
LEGAL: dict[JobState, frozenset[JobState]] = {
    S.VALIDATING: frozenset({S.QUEUED, S.PAUSED, S.FAILED, S.CANCELLED}),
    S.QUEUED: frozenset({S.STARTING, S.RUNNING, S.FINALIZING, S.PAUSED, S.FAILED, S.CANCELLED}),
    S.STARTING: frozenset({S.QUEUED, S.RUNNING, S.FINALIZING, S.PAUSING, S.CANCELLING, S.FAILED}),
    S.RUNNING: frozenset({S.QUEUED, S.FINALIZING, S.PAUSING, S.CANCELLING, S.FAILED}),
    # Training may end before it hears that it should pause.
    S.PAUSING: frozenset({S.PAUSED, S.FINALIZING, S.CANCELLING, S.FAILED}),
    S.PAUSED: frozenset({S.VALIDATING, S.QUEUED, S.CANCELLED}),
    S.CANCELLING: frozenset({S.CANCELLED}),
    S.FINALIZING: frozenset({S.SUCCEEDED, S.FAILED}),
    S.SUCCEEDED: frozenset(),
    S.FAILED: frozenset(),
    S.CANCELLED: frozenset(),
}


class DesiredState(IntEnum):
    """`DesiredState` of the contract: what the job's workload should be."""

    RUNNING = 1
    STOPPED = 2
    DELETED = 3


class Level(IntEnum):
    """Level of an event; `runner.v1.Level` by its numbers."""

    INFO = 1
    WARN = 2
    ERROR = 3


class ArtifactKind(IntEnum):
    """Kind of an uploaded artifact; `runner.v1.ArtifactKind` by its numbers."""

    CHECKPOINT = 1
    TRAINING_STATE = 2
    FINAL = 3
    RESULT_FILE = 4
    MERGED = 5


class EffectKind(StrEnum):
    """Kinds of effects that a job owes to other services."""

    WORKLOAD = "workload"
    REGISTER_CHECKPOINT = "register_checkpoint"
    REGISTER_MODEL = "register_model"
    REGISTER_MERGED = "register_merged"
    REGISTER_RESULT = "register_result"
    RECORD_USAGE = "record_usage"
    # Removes training states below its step, which no attempt will resume from.
    PURGE = "purge"


# A job succeeds when none of these is owed any more.
CLOSING_KINDS = (
    EffectKind.REGISTER_CHECKPOINT,
    EffectKind.REGISTER_MODEL,
    EffectKind.REGISTER_MERGED,
    EffectKind.REGISTER_RESULT,
)

# The step of a purge that removes every training state.
PURGE_ALL = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Companion:
    """Another model that the job needs, by its role, as its name was meant at creation."""

    role: str
    model: str
    version_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """Numbers of checkpoints to keep; `last` 0 keeps all."""

    last: int = 0
    best: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """Request of the tenant; immutable."""

    model: str
    # Of the complete weights: the base's, where the model is an adapter.
    model_version_id: str
    model_bytes: int
    training_file: str
    validation_file: str = ""
    method: str = "supervised"
    suffix: str = ""
    seed: int = 0
    hyperparameters: dict[str, Any] = field(default_factory=dict)
    # Of reinforcement, and empty otherwise.
    grader: dict[str, Any] = field(default_factory=dict)
    # Models that the grader asks; the role of each is the path of the field that names it.
    judges: tuple[Companion, ...] = ()
    integrations: list[dict[str, Any]] = field(default_factory=list)
    metadata: dict[str, str] = field(default_factory=dict)
    backend: str = "trl"
    # The request's `windlass.config`.
    extra: dict[str, Any] = field(default_factory=dict)
    resources: Resources = field(default_factory=Resources)
    companions: tuple[Companion, ...] = ()
    # None: as the installation says.
    keep: Keep | None = None
    # The backend's own, in place of method, hyperparameters and `extra`; empty otherwise.
    document: dict[str, Any] = field(default_factory=dict)
    schema_version: int = 0
    # Other forms of the result: `merged`, `gguf`.
    exports: tuple[str, ...] = ()
    # The shape of the adapter that `model` is; empty for complete weights.
    adapter: dict[str, Any] = field(default_factory=dict)
    evaluation: Evaluation | None = None
    # Layers of an adapter by the preset of the weights, where the request names none.
    lora_targets: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The configuration that the backend made of the spec."""

    framework: str
    schema_version: int
    config: dict[str, Any]
    num_nodes: int = 1
    # Public names of the other models that it needs, by role.
    companions: dict[str, str] = field(default_factory=dict)
    # Packages that it needs beside its framework's, each with the setting that needs it.
    libraries: dict[str, str] = field(default_factory=dict)
    # OpenAI's, with no "auto" left; empty for a configuration that came whole.
    hyperparameters: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFailure:
    """Failure of a job, in OpenAI's shape."""

    code: str
    message: str
    param: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """Queue position of a waiting job, and the reason it waits."""

    name: str = ""
    position: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectPlacement:
    """A project's place in a cluster with Kubernetes, as its assignment says."""

    namespace: str = ""
    # The LocalQueue there, and the ClusterQueue behind it.
    queue: str = ""
    cluster_queue: str = ""
    priority_class: str = ""
    node_selector: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Progress of a training. `since_*` is where this attempt's clock began."""

    step: int = 0
    total_steps: int = 0
    tokens_per_second: float = 0.0
    since_step: int = 0
    since_ms: int = 0
    # What the attempt's runner is doing, one of `reports.PHASES`; empty before it reports.
    phase: str = ""
    # As measured last, by any attempt.
    train_loss: float | None = None
    train_mean_reward: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One fine-tuning job. Times are Unix milliseconds; 0 means not yet."""

    id: str
    organization_id: str
    project_id: str
    request_id: str = ""
    spec: Spec
    created_at_ms: int
    # The name that the model will have, drawn at creation.
    model_name: str
    state: JobState = JobState.VALIDATING
    plan: Plan | None = None
    attempt: int = 0
    generation: int = 0
    # Where the attempt is; empty while nobody has it.
    cluster_id: str = ""
    # Where the workload was put last, so that it can be taken away.
    workload_cluster: str = ""
    # What it is given there; None where it needs nothing.
    place: ProjectPlacement | None = None
    # Attempts that ended through no fault of the job.
    failures: int = 0
    # Not placed before.
    not_before_ms: int = 0
    # When what is awaited of the attempt counts as never coming; 0: nothing is.
    deadline_ms: int = 0
    queue: Queue = Queue()
    progress: Progress = Progress()
    # Highest event of the attempt that is stored.
    last_seq: int = 0
    # Keys of what its cluster observed of the attempt and has been told.
    observed: tuple[str, ...] = ()
    # Attempt whose Finish is stored.
    finished_attempt: int = 0
    trained_tokens: int = 0
    billed_tokens: int = 0
    estimated_finish_at_ms: int = 0
    started_at_ms: int = 0
    finished_at_ms: int = 0
    fine_tuned_model: str = ""
    result_files: tuple[str, ...] = ()
    # Of `spec.evaluation`.
    evaluation: EvaluationResult | None = None
    failure: JobFailure | None = None
    # Events stored so far: the next one's revision is one more.
    revision: int = 0

    @property
    def ended(self) -> bool:
        """True if the job is in a terminal state."""
        return self.state in TERMINAL

    @property
    def held(self) -> bool:
        """True if an attempt on a cluster may report."""
        return self.state in ACTIVE and self.cluster_id != ""

    @property
    def desired(self) -> DesiredState:
        """The desired state of its workload, from its own state alone."""
        if self.state in (S.PAUSING, S.FINALIZING):
            return DesiredState.STOPPED
        if self.state is not S.CANCELLING and self.held:
            return DesiredState.RUNNING
        return DesiredState.DELETED

    @property
    def nodes(self) -> int:
        """The number of nodes that an attempt takes."""
        return 1 if self.plan is None else max(1, self.plan.num_nodes)

    @property
    def libraries(self) -> dict[str, str]:
        """The packages that its plan needs beside its framework's."""
        return {} if self.plan is None else self.plan.libraries


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEvent:
    """An event before it has its place in the job's order."""

    message: str
    level: Level = Level.INFO
    # None: a message; otherwise the numbers of a metrics event.
    metrics: dict[str, Any] | None = None
    at_ms: int
    # Of the attempt's own numbering; 0 for ours.
    seq: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEvent:
    """A stored event; `revision` is its place, from 1 without gaps."""

    job_id: str
    revision: int
    at_ms: int
    level: Level
    message: str
    metrics: dict[str, Any] | None

    @property
    def id(self) -> str:
        """`ftevent-<the job's letters>-<revision>`."""
        return f"ftevent-{self.job_id.removeprefix('ftjob-')}-{self.revision}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """A call owed to another service; unique by job, attempt, step and kind."""

    kind: EffectKind
    attempt: int
    step: int = 0
    payload: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Outcome of a transition: the job, its events and effects, stored in one transaction."""

    job: Job
    events: tuple[NewEvent, ...] = ()
    effects: tuple[Effect, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A committed checkpoint, listed by the API and usable as a model."""

    id: str
    job_id: str
    step: int
    created_at_ms: int
    model_name: str
    metrics: dict[str, float]
    artifact_id: str
