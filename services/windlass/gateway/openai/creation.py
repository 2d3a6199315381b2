"""POST /v1/fine_tuning/jobs, beside FastAPI: the body goes on as it came, once it is decoded."""

from urllib.parse import parse_qsl

import orjson

from windlass.api.jobs.v1 import jobs_pb2 as pb
from windlass.api.jobs.v1 import jobs_pb2_grpc as rpc
from windlass.core.app import App
from windlass.gateway.asgi import JSON, read_body, respond
from windlass.gateway.exchange import HttpExchange
from windlass.gateway.openai.rendering import render_job
from windlass.gateway.parameters import unknown_parameter
from windlass.jobs_api.request import decoded

PATH = "/v1/fine_tuning/jobs"


class JobCreation:
    """Creates jobs."""

    def __init__(self, app: App):
        self._jobs = app.clients.stub(rpc.JobsServiceStub)
        self._max_bytes = app.settings.http.max_body_bytes

    async def handle(self, exchange: HttpExchange) -> None:
        """Creates a job; with an `Idempotency-Key`, a repeat answers the first one."""
        for name, _ in parse_qsl(exchange.scope["query_string"].decode("latin-1")):
            raise unknown_parameter(name)
        body = await read_body(exchange.receive, exchange.headers, self._max_bytes)
        await decoded(body)
        key = exchange.headers.get(b"idempotency-key", b"").decode("latin-1")
        request = pb.CreateJobRequest(document=body, request_id=key)
        job = render_job(await self._jobs.CreateJob(request))
        await respond(exchange.send, 200, [JSON], orjson.dumps(job))
