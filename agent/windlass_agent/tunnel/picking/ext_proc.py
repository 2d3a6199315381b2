"""Messages of Envoy's external processing, as the endpoint picker protocol uses them.

https://gateway-api-inference-extension.sigs.k8s.io, docs/proposals/004-endpoint-picker-protocol:
the picker is sent a request's head and body, and names an endpoint in a header or in metadata.
"""

from collections.abc import Mapping
from typing import Any

from google.protobuf.struct_pb2 import Struct

from windlass.api.picker.v1 import ext_proc_pb2 as pb

METHOD = "/envoy.service.ext_proc.v3.ExternalProcessor/Process"
DESTINATION = "x-gateway-destination-endpoint"
_LB, _HINT = "envoy.lb", "envoy.lb.subset_hint"
# What one message holds; Envoy's buffers are about as long.
PIECE_BYTES = 64 * 1024


class PickerRefused(Exception):
    """A picker that answers in the place of an engine, as one does that sheds load."""

    def __init__(self, status: int):
        super().__init__(f"The picker answers with status {status}.")
        self.status = status


def request_parts(
    path: str, request_id: str, body: bytes, hint: Mapping[str, Any]
) -> list[pb.ProcessingRequest]:
    """A request as a picker hears of it; `hint` are the endpoints that may answer."""
    told = Struct()
    told.update(hint)
    context = pb.Metadata(filter_metadata={_HINT: told})
    headers = {
        ":method": "POST",
        ":path": path,
        "content-type": "application/json",
        "content-length": str(len(body)),
        "x-request-id": request_id,
    }
    parts = [pb.ProcessingRequest(request_headers=_headers(headers), metadata_context=context)]
    for at in range(0, max(1, len(body)), PIECE_BYTES):
        piece = body[at : at + PIECE_BYTES]
        last = at + PIECE_BYTES >= len(body)
        part = pb.HttpBody(body=piece, end_of_stream=last)
        parts.append(pb.ProcessingRequest(request_body=part, metadata_context=context))
    return parts


def answer_head(status: int, content_type: str) -> pb.ProcessingRequest:
    """The head of an engine's answer, as a picker hears of it."""
    headers = {":status": str(status), "status": str(status), "content-type": content_type}
    return pb.ProcessingRequest(response_headers=_headers(headers))


def answer_end() -> pb.ProcessingRequest:
    """The end of an engine's answer, of which a picker is told not a word."""
    return pb.ProcessingRequest(response_body=pb.HttpBody(end_of_stream=True))


def destination(answer: pb.ProcessingResponse) -> str:
    """The endpoints that an answer names; empty of one that names none. Raises PickerRefused."""
    if answer.HasField("immediate_response"):
        raise PickerRefused(answer.immediate_response.status.code)
    part = answer.request_body if answer.HasField("request_body") else answer.request_headers
    for option in part.response.header_mutation.set_headers:
        header = option.header
        if header.key.lower() == DESTINATION:
            return header.raw_value.decode("ascii", "replace") or header.value
    told = answer.dynamic_metadata.fields.get(_LB)
    if told is None or DESTINATION not in told.struct_value.fields:
        return ""
    return told.struct_value.fields[DESTINATION].string_value


def _headers(headers: Mapping[str, str]) -> pb.HttpHeaders:
    values = [pb.HeaderValue(key=key, raw_value=value.encode()) for key, value in headers.items()]
    return pb.HttpHeaders(headers=pb.HeaderMap(headers=values))
