"""`python -m windlass_agent.runner.trainers.status_server COMMAND...`: a trainer with an endpoint.

The endpoint is Kubeflow Trainer's for statuses (KEP-2779), which asks for HTTP. It is served on the
loopback by a process beside the trainer, within the same walls, so neither needs another network.
"""

import os
import secrets
import signal
import socket
import sys
from pathlib import Path
from typing import NoReturn

from aiohttp import web

from windlass_agent.runner.protocol import tether
from windlass_agent.runner.protocol.event_file import EventFile
from windlass_agent.runner.protocol.trainer_status import MalformedStatus, StatusReader

# What the KEP's path names, and a job of the API has not.
_NAMESPACE, _NAME = "windlass", "job"
PATH = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/{namespace}/trainjobs/{name}/status"
_LARGEST = 64 * 1024


def main() -> NoReturn:
    """Starts the server, and becomes the command, which is told where and with which token."""
    token = secrets.token_urlsafe(32)
    listener = socket.create_server(("127.0.0.1", 0))
    trainer = os.getpid()
    if os.fork() == 0:
        _serve(listener, token, trainer=trainer)
    file = Path(os.environ["TMPDIR"], "status-token")
    file.touch(mode=0o600)
    file.write_text(token)
    port = listener.getsockname()[1]
    listener.close()
    os.environ |= {
        "KUBEFLOW_TRAINER_SERVER_URL": f"http://127.0.0.1:{port}"
        + PATH.format(namespace=_NAMESPACE, name=_NAME),
        "KUBEFLOW_TRAINER_SERVER_TOKEN": str(file),
        "DISABLE_KUBEFLOW_INTEGRATION": "FALSE",
    }
    os.execvp(sys.argv[1], sys.argv[1:])  # noqa: S606 - no shell is wanted


def _serve(listener: socket.socket, token: str, *, trainer: int) -> NoReturn:
    """Serves until the trainer ends, which may still post while it is being stopped."""
    tether.tie()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if os.getppid() == trainer:
        app = _app(EventFile.of_environment(), token)
        web.run_app(app, sock=listener, access_log=None, print=None, handle_signals=False)
    raise SystemExit


def _app(events: EventFile, token: str) -> web.Application:
    reader = StatusReader()

    async def post(request: web.Request) -> web.Response:
        given = request.headers.get("Authorization", "").removeprefix("Bearer ").strip()
        if not secrets.compare_digest(given.encode(), token.encode()):
            return web.json_response({"error": "another token"}, status=401)
        place = (request.match_info["namespace"], request.match_info["name"])
        if place != (_NAMESPACE, _NAME):
            return web.json_response({"error": "another TrainJob"}, status=403)
        try:
            for event in reader.read(await request.read()):
                events.write(event)
        except MalformedStatus as error:
            return web.json_response({"error": str(error)}, status=422)
        return web.json_response({})

    app = web.Application(client_max_size=_LARGEST)
    app.router.add_post(PATH, post)
    return app


if __name__ == "__main__":
    main()
