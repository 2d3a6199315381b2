"""A group as vLLM's is seen from outside: nodes that find each other, and hang when one is gone.

Only what the keeper and the gateway ask is answered. As with collective operations on GPUs, a
token for which a node is missing never comes, and nobody is told.
"""

import argparse
import json
import os
import signal
import socket
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

PACE_SECONDS = 0.02
METRICS = (
    "vllm:num_requests_running 0\nvllm:num_requests_waiting 0\nvllm:prompt_tokens_total 0\n"
    "vllm:prompt_tokens_cached_total 0\nvllm:generation_tokens_total 0\n"
    "vllm:kv_cache_usage_perc 0\n"
)


def options() -> argparse.Namespace:
    """Those flags of vLLM that matter here; ends for weights that are not there."""
    # As the first process of its container it would else hear no signal.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    if said := os.environ.get("LAST_WORDS"):
        sys.exit(said)
    words = [word for word in sys.argv[1:] if word != "serve"]
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for name in ("model", "served-model-name", "master-addr", "host"):
        parser.add_argument(f"--{name}", default="")
    for name in ("nnodes", "node-rank", "master-port", "port", "pipeline-parallel-size"):
        parser.add_argument(f"--{name}", type=int, default=0)
    parser.add_argument("--headless", action="store_true")
    told, _ = parser.parse_known_args(words)
    if told.nnodes != told.pipeline_parallel_size or told.headless != (told.node_rank > 0):
        sys.exit(f"no group: {words}")
    if not list(Path(told.model).glob("*.safetensors")):
        sys.exit(f"no weights in {told.model}")
    return told


class Members:
    """The connections of the other nodes."""

    def __init__(self, files: list[Any]):
        self._files = files
        self._turn = threading.Lock()

    @classmethod
    def gathered(cls, told: argparse.Namespace) -> "Members":
        """Waits until all are there."""
        listener = socket.create_server(("", told.master_port))
        files: list[Any] = []
        while len(files) < told.nnodes - 1:
            connection, _ = listener.accept()
            files.append(connection.makefile("rw"))
            print("node", files[-1].readline().strip(), "is there", flush=True)
        return cls(files)

    def step(self) -> None:
        """Has each do its part; never returns where one is gone."""
        with self._turn:
            for file in self._files:
                try:
                    file.write("step\n")
                    file.flush()
                    said = file.readline()
                except OSError:
                    said = ""
                if not said:
                    threading.Event().wait()


def follow(told: argparse.Namespace) -> int:
    """Does its part of each step until the first node is gone."""
    while True:
        try:
            connection = socket.create_connection((told.master_addr, told.master_port), 5)
            break
        except OSError as error:
            print("waiting for the first node:", error, flush=True)
            time.sleep(0.5)
    connection.settimeout(None)
    file = connection.makefile("rw")
    file.write(f"{told.node_rank}\n")
    file.flush()
    for _ in file:
        file.write("done\n")
        file.flush()
    return 1


def serve(told: argparse.Namespace, members: Members) -> None:
    """Answers until it is ended."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            model = {"id": told.served_model_name, "max_model_len": 2048}
            match self.path:
                case "/metrics":
                    self._answer(METRICS.encode(), "text/plain")
                case "/v1/models":
                    self._answer(json.dumps({"data": [model]}).encode())
                case _:
                    self._answer(b"{}")

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
            count = int(asked.get("max_tokens") or 1)
            usage = {"prompt_tokens": 1, "completion_tokens": count, "total_tokens": 1 + count}
            if asked.get("stream"):
                self._stream(count, usage)
                return
            for _ in range(count):
                members.step()
            choice = {"index": 0, "text": " word" * count, "finish_reason": "length"}
            self._answer(json.dumps({"choices": [choice], "usage": usage}).encode())

        def _stream(self, count: int, usage: dict[str, int]) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("connection", "close")
            self.end_headers()
            for number in range(count):
                members.step()
                time.sleep(PACE_SECONDS)
                last = number == count - 1
                choice = {"index": 0, "text": " word", "finish_reason": "length" if last else None}
                self._event({"choices": [choice], "usage": usage if last else None})
            self.wfile.write(b"data: [DONE]\n\n")
            self.close_connection = True

        def _event(self, chunk: dict[str, Any]) -> None:
            self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
            self.wfile.flush()

        def _answer(self, body: bytes, kind: str = "application/json") -> None:
            self.send_response(200)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            return

    ThreadingHTTPServer((told.host, told.port), Handler).serve_forever()
