"""Lack of memory at an engine's start, of which only its log says, since its pod does not."""

import asyncio

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.core import telemetry
from windlass.kubernetes.quantities import units
from windlass_agent.executors import memory_advice
from windlass_agent.executors.kubernetes.engine_settings import ENGINE, EngineSettings
from windlass_agent.executors.kubernetes.observe.capacity import ClusterCapacity
from windlass_agent.executors.kubernetes.observe.snapshot import PodSnapshot
from windlass_agent.kube import Kube, KubeError
from windlass_agent.kube.resources import PODS

READ_LINES, READ_BYTES = 200, 16 * 1024
READ_SECONDS = 10.0

log = telemetry.logger("engines")


class MemoryLack:
    """Reads ends of logs. Others' requests are in those: nothing of them is told or kept."""

    def __init__(self, kube: Kube, settings: EngineSettings, capacity: ClusterCapacity):
        self._kube = kube
        self._settings = settings
        self._capacity = capacity

    async def advice(self, engine: pb.EngineWorkload, pod: PodSnapshot) -> str:
        """Returns what an engine that ended in a pod had, and what to lower; empty if enough."""
        try:
            async with asyncio.timeout(READ_SECONDS):
                last = await self._last_words(pod)
        except (KubeError, TimeoutError) as error:
            log.info("engine_log_unread", pod=pod.name, error=repr(error))
            return ""
        if not memory_advice.ran_out(last):
            return ""
        count = (engine.gpus or self._settings.gpus) * max(1, engine.nodes)
        return memory_advice.advice(
            engine,
            gpus=[self._capacity.device_memory(pod.node)] * count,
            memory=units(pod.memory_limit),
            setting="engines.memory_bytes",
        )

    async def _last_words(self, pod: PodSnapshot) -> str:
        parts = self._kube.stream_log(
            PODS.path(pod.namespace, pod.name),
            container=ENGINE,
            tail_lines=READ_LINES,
            # One that was not started anew has but this log.
            previous=not pod.has_stopped,
        )
        text = b""
        async for part in parts:
            text = (text + part)[-READ_BYTES:]
        return text.decode(errors="replace")
