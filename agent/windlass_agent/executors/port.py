"""Interfaces of an executor, and of the driver of each workload kind.

Everything is level-triggered: `apply` says what should be, as often as it likes;
`statuses` says what is. Nothing is a command, so nothing can be lost or doubled.
"""

from collections.abc import Mapping
from typing import Protocol

from windlass.api.clusters.v1.clusters_pb2 import Capacity, Workload, WorkloadStatus
from windlass_agent.engines.load import EngineLoad

# Said among the engines that can run: the agent reaches serving stacks that others run.
ADOPTED = "adopted"


class WorkloadDriver(Protocol):
    """Runs workloads of one kind."""

    async def apply(self, workload: Workload) -> None:
        """Takes what a workload should be now; returns soon, the work goes on behind.

        Repeating it changes nothing. A DELETED workload is killed at once; when
        nothing of it runs any more, `statuses` stops naming it. A DELETED
        workload that is not known, whose `spec` may be empty, is no error; nor is
        a STOPPED one, which an agent without contact makes of an adopted job's id,
        generation and kind.
        """

    def statuses(self) -> list[WorkloadStatus]:
        """The status of every known workload, each under the generation applied last.

        One that has not changed may be the very same message, which is never changed itself.
        """

    async def adopt(self) -> None:
        """Takes over what an earlier life of this agent left running; once, before `apply`."""

    async def close(self) -> None:
        """Ends the driver's tasks; the last call."""


def kind_of(workload: Workload) -> str:
    """The kind of a workload that has a spec: its field, or `stack` for an engine of others."""
    kind = workload.WhichOneof("spec") or ""
    return "stack" if kind == "engine" and workload.engine.HasField("stack") else kind


class Executor(WorkloadDriver, Protocol):
    """Runs workloads of every kind that this cluster takes."""

    def capacity(self) -> Capacity:
        """The capacity of the cluster, and its part in use."""

    async def engine_loads(self) -> Mapping[str, EngineLoad]:
        """Returns the load of engines that serve, by their workloads' ids."""
