"""The wire of the tinker SDK from memory alone: no key, no tenant, no order, no row.

`memory_tinker.py PORT`
"""

import itertools
import sys
from typing import Any

import orjson
import uvicorn

from windlass.api.tinker.v1 import tinker_pb2 as wire
from windlass.gateway.tinker.sessions import CLIENT_CONFIG, DYNAMIC_CONFIG

_numbers = itertools.count()
_futures: dict[str, tuple[bytes, bytes]] = {}
_INFO = {
    "type": "get_info",
    "model_id": "s:train:0",
    "model_data": {"arch": "null", "model_name": "toy", "tokenizer_id": "toy"},
    "is_lora": True,
    "lora_rank": 8,
    "model_name": "toy",
}
JSON, BINARY = b"application/json", b"application/x-protobuf"


async def application(scope: Any, receive: Any, send: Any) -> None:
    """Answers one request of the SDK."""
    if scope["type"] != "http":
        return
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    kind, content = _answer(scope["path"].removeprefix("/api/v1/"), body)
    headers = [(b"content-type", kind)]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": content})


def _answer(path: str, body: bytes) -> tuple[bytes, bytes]:
    if path == "retrieve_future":
        return _futures.pop(orjson.loads(body)["request_id"])
    if path == "forward_backward":
        asked = wire.ForwardBackwardRequest.FromString(body)
        record = wire.ArrayRecord(type_tag="ArrayRecord", num_datums=len(asked.data))
        output = wire.ForwardBackwardOutput(
            loss_fn_output_type="ArrayRecord", loss_fn_outputs=[record]
        )
        return _future(BINARY, output.SerializeToString())
    if path == "optim_step":
        orjson.loads(body)
        return _future(JSON, orjson.dumps({"type": "optim_step", "metrics": {}}))
    if path == "create_model":
        return _future(JSON, orjson.dumps({"type": "create_model", "model_id": "s:train:0"}))
    answers: dict[str, Any] = {
        "client/config": CLIENT_CONFIG,
        "client/dynamic_config": DYNAMIC_CONFIG,
        "telemetry": {"status": "accepted"},
        "create_session": {"type": "create_session", "session_id": "s"},
        "get_info": _INFO,
        "session_heartbeat": {"type": "session_heartbeat"},
    }
    return JSON, orjson.dumps(answers.get(path, {}))


def _future(kind: bytes, content: bytes) -> tuple[bytes, bytes]:
    name = f"op_{next(_numbers)}"
    _futures[name] = kind, content
    return JSON, orjson.dumps({"request_id": name, "model_id": "s:train:0"})


if __name__ == "__main__":
    uvicorn.run(application, port=int(sys.argv[1]), log_level="warning")
