"""POST /v1/fine_tuning/jobs, beside FastAPI: the body goes on as it came, once it is decoded."""

from urllib.parse import parse_qsl

import orjson

from windlass.api.jobs.v1 import jobs_pb2 as pb
from windlass.api.jobs.v1 import jobs_pb2_grpc as rpc
from windlass.core.app import App
from windlass.core.errors import InvalidArgument
from windlass.gateway.asgi import JSON, read_body, respond
from windlass.gateway.exchange import HttpExchange
from windlass.gateway.openai.rendering import render_job
from windlass.gateway.parameters import unknown_parameter
from windlass.jobs_api.query import CreationQuery, typed
from windlass.jobs_api.request import CheckJob, CreateJob, decoded

PATH = "/v1/fine_tuning/jobs"


class JobCreation:
    """Creates jobs."""

    def __init__(self, app: App):
        self._jobs = app.clients.stub(rpc.JobsServiceStub)
        self._max_bytes = app.settings.http.max_body_bytes

    async def handle(self, exchange: HttpExchange) -> None:
        """Creates a job; with an `Idempotency-Key`, a repeat answers the first one.

        With `dry_run` it creates none.
        """
        asked = _query(exchange.scope["query_string"])
        body = await read_body(exchange.receive, exchange.headers, self._max_bytes)
        await decoded(body, CheckJob if asked.dry_run else CreateJob)
        if asked.dry_run:
            job = await self._jobs.CheckJob(pb.CheckJobRequest(document=body, **asked.given))
        else:
            key = exchange.headers.get(b"idempotency-key", b"").decode("latin-1")
            job = await self._jobs.CreateJob(pb.CreateJobRequest(document=body, request_id=key))
        await respond(exchange.send, 200, [JSON], orjson.dumps(render_job(job)))


def _query(encoded: bytes) -> CreationQuery:
    """The parameters of a request; raises InvalidArgument that names the one at fault."""
    pairs = parse_qsl(encoded.decode("latin-1"), keep_blank_values=True)
    seen: set[str] = set()
    for name, _ in pairs:
        if name not in CreationQuery.__struct_fields__:
            raise unknown_parameter(name)
        # Of `dry_run`, each value means the opposite of the other.
        if name in seen:
            raise InvalidArgument(f"The parameter '{name}' is given twice.", param=name)
        seen.add(name)
    return typed(dict(pairs), CreationQuery)
