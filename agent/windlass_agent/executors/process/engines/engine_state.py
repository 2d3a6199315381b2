"""State of one engine on this machine: what is wanted of it, its process, and where it stands."""

from collections.abc import Callable

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass_agent.executors.process.allotment import Allotment
from windlass_agent.executors.process.engines.engine_process import EngineProcess


class EngineState:
    """The state that the parts of a run share; `changed` is called for each new phase."""

    def __init__(
        self,
        workload: pb.Workload,
        changed: Callable[[], None],
        *,
        process: EngineProcess | None,
        allotment: Allotment,
    ):
        """`process` runs already, with that allotment."""
        self.workload = workload
        self.process = process
        self.allotment = allotment
        # Whether the workload is what the control plane wants now; that of a record is older.
        self.is_told = process is None
        self.phase: pb.Phase.ValueType = pb.PHASE_STARTING if process else pb.PHASE_PENDING
        self.reason = self.message = ""
        self._changed = changed

    @property
    def spec(self) -> pb.EngineWorkload:
        """The engine's part of the workload."""
        return self.workload.engine

    def want(self, workload: pb.Workload) -> None:
        """Takes what the control plane wants now."""
        self.workload, self.is_told = workload, True

    def fits(self, workload: pb.Workload) -> bool:
        """True if the workload's spec can be applied to this run without a restart."""
        same = _lasting(self.spec) == _lasting(workload.engine)
        again = self.workload.generation == workload.generation
        wanted = workload.desired == pb.DESIRED_STATE_RUNNING
        return wanted and same and (again or self.phase != pb.PHASE_FAILED)

    def become(self, phase: "pb.Phase.ValueType", reason: str = "", message: str = "") -> None:
        """Enters a phase."""
        self.phase, self.reason, self.message = phase, reason, message
        self._changed()


def _lasting(spec: pb.EngineWorkload) -> pb.EngineWorkload:
    """The part of a spec that an engine keeps from its start to its end."""
    kept = pb.EngineWorkload()
    kept.CopyFrom(spec)
    kept.ClearField("adapters")
    kept.ClearField("followed")
    kept.ClearField("model_files")
    kept.ClearField("draft_files")
    kept.ClearField("asleep")
    return kept
