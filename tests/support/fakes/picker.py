"""An endpoint picker of which the test decides what it answers, and whether.

The real one neither lies nor hangs when it is asked to; tests/cluster/engines/test_endpoint_picker
has it.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc

from windlass.api.picker.v1 import ext_proc_pb2 as pb
from windlass_agent.tunnel.picking.ext_proc import DESTINATION, METHOD

Answer = Callable[["Heard"], "AsyncIterator[pb.ProcessingResponse]"]


@dataclass
class Heard:
    """One call: the request that it was about, and what was told after the answer."""

    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    hint: list[str] = field(default_factory=list)
    later: list[str] = field(default_factory=list)
    status: str = ""
    # `open`, `ended` once the answer was complete, or `cut` before.
    state: str = "open"

    @property
    def json(self) -> dict[str, Any]:
        return dict(json.loads(self.body))


def header(endpoints: str) -> pb.ProcessingResponse:
    """An answer that names endpoints, as EPP does."""
    option = pb.HeaderValueOption(
        header=pb.HeaderValue(key=DESTINATION, raw_value=endpoints.encode())
    )
    mutation = pb.HeaderMutation(set_headers=[option])
    common = pb.CommonResponse(header_mutation=mutation)
    return pb.ProcessingResponse(request_headers=pb.ProcessedPart(response=common))


def metadata(endpoints: str) -> pb.ProcessingResponse:
    """An answer that names endpoints in metadata alone."""
    made = pb.ProcessingResponse(request_headers=pb.ProcessedPart())
    made.dynamic_metadata.update({"envoy.lb": {DESTINATION: endpoints}})
    return made


def refusal(status: int) -> pb.ProcessingResponse:
    """An answer in the place of an engine's."""
    return pb.ProcessingResponse(
        immediate_response=pb.ImmediateResponse(status=pb.HttpStatus(code=status))
    )


class FakePicker:
    """A picker at `address`. `answers` makes what it says, by what it heard."""

    def __init__(self) -> None:
        self.calls: list[Heard] = []
        self.address = ""
        self.answers: Callable[[Heard], list[pb.ProcessingResponse]] = lambda _: []
        # It takes requests and says nothing.
        self.hangs = False
        # It ends no call by itself.
        self.lingers = False

    def names(self, *endpoints: str) -> None:
        """Has it name endpoints from now on."""
        self.answers = lambda _: [header(",".join(endpoints))]

    async def process(
        self, requests: AsyncIterator[pb.ProcessingRequest], context: Any
    ) -> AsyncIterator[pb.ProcessingResponse]:
        heard = Heard()
        self.calls.append(heard)
        try:
            async for request in requests:
                if _takes(heard, request) and not self.hangs:
                    for answer in self.answers(heard):
                        yield answer
            if self.lingers:
                await asyncio.Event().wait()
        finally:
            heard.state = "ended" if "response_body" in heard.later else "cut"


def _takes(heard: Heard, request: pb.ProcessingRequest) -> bool:
    """Notes a message; True if it was the request's last."""
    kind = request.WhichOneof("request")
    if kind == "request_headers":
        headers = request.request_headers.headers.headers
        heard.headers = {one.key: one.raw_value.decode() for one in headers}
        return False
    if kind == "request_body":
        told = request.metadata_context.filter_metadata["envoy.lb.subset_hint"]
        values = told.fields["x-gateway-destination-endpoint-subset"].list_value.values
        heard.hint = [one.string_value for one in values]
        heard.body += request.request_body.body
        return request.request_body.end_of_stream
    if kind == "response_headers":
        for one in request.response_headers.headers.headers:
            if one.key == "status":
                heard.status = one.raw_value.decode()
    heard.later.append(kind or "")
    return False


@asynccontextmanager
async def fake_picker() -> AsyncIterator[FakePicker]:
    """A picker in plain text on this machine."""
    picker, server = FakePicker(), grpc.aio.server()
    handler = grpc.stream_stream_rpc_method_handler(
        picker.process,
        request_deserializer=pb.ProcessingRequest.FromString,
        response_serializer=pb.ProcessingResponse.SerializeToString,
    )
    _, service, method = METHOD.split("/")
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(service, {method: handler}),)
    )
    picker.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    try:
        yield picker
    finally:
        await server.stop(0)
        await asyncio.sleep(0)
