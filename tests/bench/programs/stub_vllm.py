"""vLLM's server as an agent sees it, without a model: `--uds=PATH`, and flags that it ignores.

It is healthy, answers every POST, and has a page of metrics as long as vLLM's.
"""

import asyncio
import sys

_JSON = "application/json"
_MODELS = '{"object":"list","data":[{"id":"stub","max_model_len":4096}]}'
# vLLM's histograms, of which the agent needs nothing.
_PAGE = "".join(
    f'vllm:stub_{name}_seconds_bucket{{engine="0",model_name="stub",le="{bucket}.0"}} 0.0\n'
    for name in range(40)
    for bucket in range(40)
) + "".join(
    f'vllm:{name}{{engine="0",model_name="stub"}} 0.0\n'
    for name in (
        "num_requests_running",
        "num_requests_waiting",
        "prompt_tokens_total",
        "prompt_tokens_cached_total",
        "generation_tokens_total",
        "kv_cache_usage_perc",
        "request_success_total",
    )
)
_ANSWERS = {
    b"/v1/models": (_JSON, _MODELS),
    b"/metrics": ("text/plain", _PAGE),
    b"/load": (_JSON, '{"server_load":0}'),
}


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers one connection's requests, one after the other."""
    try:
        while head := await reader.readuntil(b"\r\n\r\n"):
            for line in head.lower().split(b"\r\n"):
                if line.startswith(b"content-length:"):
                    await reader.readexactly(int(line.partition(b":")[2]))
            kind, said = _ANSWERS.get(head.split(b" ")[1], (_JSON, "{}"))
            writer.write(
                f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\n"
                f"content-length: {len(said)}\r\n\r\n{said}".encode()
            )
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def serve(path: str) -> None:
    """Serves for ever."""
    server = await asyncio.start_unix_server(answer, path)
    await server.serve_forever()


if __name__ == "__main__":
    (uds,) = (word for word in sys.argv if word.startswith("--uds="))
    asyncio.run(serve(uds.partition("=")[2]))
