"""The driver of workloads that train engines of this machine."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.core.ids import is_identifier
from windlass_agent.executors.process.trainings.training import EngineTrainingRun, Find


class EngineTrainingDriver:
    """A WorkloadDriver. What an engine was asked for is known through restarts of the agent."""

    def __init__(
        self,
        folder: Path,
        find: Find,
        models: Callable[[str], Path],
        changed: Callable[[], None],
    ):
        """`folder` has a file for each training that an engine was asked for.

        `models` leads to the files of a version of a model on this machine.
        """
        self._folder = folder
        self._find = find
        self._models = models
        self._changed = changed
        self._runs: dict[str, EngineTrainingRun] = {}

    async def apply(self, workload: pb.Workload) -> None:
        """Begins what is wanted, or ends it; raises ValueError for an invalid id."""
        if not is_identifier(workload.id):
            raise ValueError(f"{workload.id!r} is not an identifier")
        known, record = self._runs.get(workload.id), self._folder / f"{workload.id}.json"
        if known is not None and workload.generation < known.workload.generation:
            return
        if workload.desired == pb.DESIRED_STATE_DELETED:
            if known is not None:
                await known.close()
                del self._runs[workload.id]
            record.unlink(missing_ok=True)
        elif not workload.HasField("engine_training"):
            # An agent without contact stops jobs alone.
            return
        elif known is None:
            self._runs[workload.id] = EngineTrainingRun(
                workload, record, self._find, self._models, self._changed
            )
        else:
            known.apply(workload)
        self._changed()

    def statuses(self) -> list[pb.WorkloadStatus]:
        """The status of every training."""
        return [one.status() for one in self._runs.values()]

    async def adopt(self) -> None:
        """Takes nothing over: the engine has the jobs, and records say their names."""

    async def close(self) -> None:
        """Ends the tasks; trainings go on in their engines."""
        await asyncio.gather(*(one.close() for one in self._runs.values()))
