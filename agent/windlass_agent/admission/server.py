"""The webhook's server: an AdmissionReview in, its answer out, the runtime looked up between."""

import base64
import json
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from windlass.core.telemetry import logger
from windlass_agent.admission.review import Request, mutation, objections, sentence
from windlass_agent.frameworks import TrainingRuntime
from windlass_agent.kube import Kube, KubeError, ResourceNotFound

_log = logger("admission")
# Two objects of at most 1.5 MiB each, and what is around them.
_LARGEST = 4 * 2**20

Answer = dict[str, Any]


class AdmissionWebhook:
    """Answers what `review` says; nothing is kept between two questions."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube

    def app(self) -> web.Application:
        """The routes: `/mutate`, `/validate`, `/healthz`."""
        app = web.Application(client_max_size=_LARGEST)
        app.router.add_post("/mutate", self._answering(self.mutate))
        app.router.add_post("/validate", self._answering(self.validate))
        app.router.add_get("/healthz", _healthy)
        return app

    async def mutate(self, request: Request) -> Answer:
        """Completes a TrainJob; raises KubeError when its runtime cannot be read."""
        runtime = await self._runtime(request)
        patch = mutation(request, runtime) if runtime else []
        if not patch:
            return {"allowed": True}
        text = base64.b64encode(json.dumps(patch).encode()).decode()
        return {"allowed": True, "patchType": "JSONPatch", "patch": text}

    async def validate(self, request: Request) -> Answer:
        """Refuses a TrainJob that cannot run; raises KubeError as `mutate` does."""
        runtime = await self._runtime(request)
        if runtime and (message := objections(request, runtime)):
            return _refused(message)
        return {"allowed": True}

    async def _runtime(self, request: Request) -> TrainingRuntime | None:
        """The runtime, or None; Kubeflow Trainer itself reports a missing one."""
        if request.runtime is None:
            return None
        kind, name = request.runtime
        try:
            return TrainingRuntime.of(await self._kube.get(kind.path(request.namespace, name)))
        except (ResourceNotFound, ValueError):
            return None

    def _answering(
        self, answer: Callable[[Request], Awaitable[Answer]]
    ) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def handle(http: web.Request) -> web.Response:
            try:
                request = Request.of(await http.json())
            except ValueError as error:
                return web.json_response({"error": str(error)}, status=400)
            try:
                # Said even before the schema is asked, since no runtime is to be had.
                wrong = sentence(request.faults())
                response = _refused(wrong) if wrong else await answer(request)
            except KubeError as error:
                # No answer: whether it is needed, the webhook's failurePolicy says.
                _log.warning("runtime_not_read", namespace=request.namespace, reason=str(error))
                return web.json_response({"error": error.message}, status=503)
            return web.json_response(
                {
                    "apiVersion": "admission.k8s.io/v1",
                    "kind": "AdmissionReview",
                    "response": {"uid": request.uid, **response},
                }
            )

        return handle


def _refused(message: str) -> Answer:
    return {"allowed": False, "status": {"code": 422, "message": message}}


async def _healthy(_: web.Request) -> web.Response:
    return web.json_response({"status": "ok"})
