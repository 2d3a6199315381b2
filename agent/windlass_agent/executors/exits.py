"""The exit report of a runner, read by an agent that was away when the runner ended."""

import msgspec

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.api.jobs.v1 import jobs_pb2
from windlass.api.runner.v1 import runner_pb2

_PHASES = {"succeeded": pb.PHASE_SUCCEEDED, "stopped": pb.PHASE_STOPPED}


class Exit(msgspec.Struct, kw_only=True, frozen=True):
    """Exit report of a runner, in `exit.json` or its container's termination message."""

    outcome: str
    error_code: str = ""
    error_message: str = ""
    error_param: str = ""
    trained_tokens: int = 0
    last_seq: int = 0
    # Whether the agent has taken it already.
    reported: bool = True

    @property
    def phase(self) -> "pb.Phase.ValueType":
        """The phase that follows for the attempt."""
        return _PHASES.get(self.outcome, pb.PHASE_FAILED)

    def to_finish(self, run: jobs_pb2.Run) -> jobs_pb2.RunFinishRequest:
        """The finish that the runner would have reported to jobs."""
        finish = runner_pb2.FinishRequest(
            outcome=runner_pb2.Outcome.Value(f"OUTCOME_{self.outcome.upper()}"),
            error_code=self.error_code,
            error_message=self.error_message,
            error_param=self.error_param,
            trained_tokens=self.trained_tokens,
            last_seq=self.last_seq,
        )
        return jobs_pb2.RunFinishRequest(run=run, finish=finish)


def read_exit(content: bytes | str) -> Exit | None:
    """Reads an exit report; None unless it is complete."""
    try:
        found = msgspec.json.decode(content, type=Exit)
    except msgspec.DecodeError:
        return None
    return found if found.outcome in ("succeeded", "failed", "stopped") else None
