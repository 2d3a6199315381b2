"""Use of pods' GPUs, from a server that answers as Prometheus documents its API.

A real HTTP server in the place of Prometheus, which is not among the test programs:
https://prometheus.io/docs/prometheus/latest/querying/api/#instant-queries
"""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from windlass_agent.executors.kubernetes.engine_settings import PrometheusSettings
from windlass_agent.executors.kubernetes.engines import prometheus
from windlass_agent.executors.kubernetes.engines.prometheus import PrometheusGpus, parsed

POD = ("team-a", "engine-1")
OTHER = ("team-b", "engine-2")


def sample(value: Any, **labels: Any) -> dict[str, Any]:
    return {"metric": labels, "value": [1_764_000_000.123, value]}


def vector(*samples: Any) -> dict[str, Any]:
    return {"status": "success", "data": {"resultType": "vector", "result": list(samples)}}


class Prometheus:
    """The server; the test says what it answers."""

    def __init__(self) -> None:
        self.answer: Any = vector()
        self.status = 200
        self.asked: list[str] = []

    async def query(self, request: web.Request) -> web.StreamResponse:
        """Answers an instant query."""
        self.asked.append(request.query["query"])
        text = self.answer if isinstance(self.answer, str) else json.dumps(self.answer)
        headers = {"location": "/api/v1/query"} if self.status == 302 else {}
        return web.Response(text=text, status=self.status, headers=headers)


@pytest.fixture
async def server() -> AsyncIterator[tuple[Prometheus, PrometheusGpus]]:
    answers, app = Prometheus(), web.Application()
    app.router.add_get("/prometheus/api/v1/query", answers.query)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    settings = PrometheusSettings(url=f"http://127.0.0.1:{port}/prometheus/", gpu_query="busy")
    yield answers, PrometheusGpus(settings)
    await runner.cleanup()


async def test_pods_are_as_busy_as_their_gpus(server: tuple[Prometheus, PrometheusGpus]) -> None:
    answers, gpus = server
    answers.answer = vector(
        sample("80", namespace=POD[0], pod=POD[1]),
        sample("40", namespace=POD[0], pod=POD[1]),
        # As Prometheus writes it where the exporter's own pod has these labels.
        sample(
            "99.5", namespace="gpu-operator", pod="dcgm", exported_namespace="team-b",
            exported_pod="engine-2",
        ),
    )  # fmt: skip
    found = await gpus([POD, OTHER, ("team-a", "another")])
    assert found == {POD: pytest.approx(0.6), OTHER: pytest.approx(0.995)}
    assert answers.asked == ["busy"]


@pytest.mark.parametrize(
    "answer",
    [
        "", "[]", "null", "{}", "<html>", "[" * 100_000,
        {"status": "error", "errorType": "bad_data", "error": "no"},
        {"status": "success"}, {"status": "success", "data": None},
        {"status": "success", "data": {"resultType": "matrix", "result": []}},
        {"status": "success", "data": {"resultType": "vector", "result": {}}},
    ],
)  # fmt: skip
async def test_what_is_no_vector_says_nothing(
    server: tuple[Prometheus, PrometheusGpus], answer: Any
) -> None:
    answers, gpus = server
    answers.answer = answer
    assert await gpus([POD]) == {}


def test_samples_that_cannot_be_are_left_out() -> None:
    good = sample("30", namespace=POD[0], pod=POD[1])
    wrong: list[Any] = [
        None, 3, {}, {"metric": {}, "value": []}, sample("NaN", namespace="a", pod="b"),
        sample("+Inf", namespace="a", pod="b"), sample("x", namespace="a", pod="b"),
        sample("5", namespace="a"), sample("5", namespace=3, pod=["b"]), sample(None, pod="b"),
        {"metric": [], "value": [0, "5"]},
    ]  # fmt: skip
    assert parsed(json.dumps(vector(*wrong, good)).encode()) == {POD: 0.3}
    beyond = [sample("-5", namespace="a", pod="b"), sample("1e9", namespace="a", pod="c")]
    assert parsed(json.dumps(vector(*beyond)).encode()) == {("a", "b"): 0.0, ("a", "c"): 1.0}


async def test_a_server_that_fails_or_says_too_much_says_nothing(
    server: tuple[Prometheus, PrometheusGpus], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, gpus = server
    answers.answer = vector(sample("80", namespace=POD[0], pod=POD[1]))
    for status in (302, 401, 500):
        answers.status = status
        assert await gpus([POD]) == {}
    assert len(answers.asked) == 3, "no other address is followed"
    answers.status = 200
    monkeypatch.setattr(prometheus, "ANSWER_BYTES", 64)
    assert await gpus([POD]) == {}
    nobody = PrometheusGpus(PrometheusSettings(url="http://127.0.0.1:1"))
    assert await nobody([POD]) == {}


@pytest.mark.parametrize("url", ["", "ftp://x", "http://user:pass@x", "http://x y", "file:///x"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="url"):
        PrometheusSettings(url=url)
