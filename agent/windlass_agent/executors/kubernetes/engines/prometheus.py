"""Use of pods' GPUs, as a Prometheus tells it that scrapes an exporter such as NVIDIA's DCGM.

Its API: https://prometheus.io/docs/prometheus/latest/querying/api/#instant-queries
"""

import json
import math
from collections.abc import Collection
from typing import Any

import aiohttp

from windlass.core import telemetry
from windlass_agent.executors.kubernetes.engine_settings import PrometheusSettings

log = telemetry.logger("engines")
_SECONDS = 5.0
ANSWER_BYTES = 4 * 2**20
# A pod's namespace and name.
PodKey = tuple[str, str]
# Where Prometheus keeps its own labels, an exporter's are behind them.
_LABELS = (("exported_namespace", "exported_pod"), ("namespace", "pod"))


class PrometheusGpus:
    """Asks a Prometheus; whatever is wrong with its answer, nothing is known then."""

    def __init__(self, settings: PrometheusSettings):
        self._settings = settings

    async def __call__(self, pods: Collection[PodKey]) -> dict[PodKey, float]:
        """Returns the parts from 0 to 1 that the GPUs of pods are busy; never raises."""
        try:
            answer = await self._answer()
            found = parsed(answer)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            log.warning("gpu_use_unknown", url=self._settings.url, error=str(error))
            return {}
        return {pod: found[pod] for pod in pods if pod in found}

    async def _answer(self) -> bytes:
        url = self._settings.url.rstrip("/") + "/api/v1/query"
        timeout = aiohttp.ClientTimeout(total=_SECONDS)
        query = {"query": self._settings.gpu_query}
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(url, params=query, allow_redirects=False) as response,
        ):
            if response.status != 200:
                raise ValueError(f"it answers with {response.status}")
            answer = bytearray()
            async for part in response.content.iter_any():
                answer += part
                if len(answer) > ANSWER_BYTES:
                    raise ValueError(f"more than {ANSWER_BYTES} bytes")
        return bytes(answer)


def parsed(answer: bytes) -> dict[PodKey, float]:
    """The parts by pod, of several samples of one the mean; raises ValueError for no vector."""
    try:
        said = json.loads(answer)
        samples = said["data"]["result"] if said["status"] == "success" else None
        if said["data"]["resultType"] != "vector" or not isinstance(samples, list):
            raise ValueError("it answers with no vector")
    except (KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"it answers with no vector: {error!r}") from error
    found: dict[PodKey, list[float]] = {}
    for sample in samples:
        if (one := _sample(sample)) is not None:
            found.setdefault(one[0], []).append(one[1])
    return {pod: sum(parts) / len(parts) for pod, parts in found.items()}


def _sample(sample: Any) -> tuple[PodKey, float] | None:
    try:
        labels, percent = sample["metric"], float(sample["value"][1])
        names = next((labels[a], labels[b]) for a, b in _LABELS if labels.get(a) and labels.get(b))
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, StopIteration):
        return None
    known = math.isfinite(percent) and all(isinstance(name, str) for name in names)
    return (names, min(1.0, max(0.0, percent / 100))) if known else None
