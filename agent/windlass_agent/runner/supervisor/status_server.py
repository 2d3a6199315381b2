"""Kubeflow Trainer's status endpoint (KEP-2779), served to one trainer on this machine."""

import contextlib
import secrets
from collections.abc import AsyncIterator
from pathlib import Path

from aiohttp import web

from windlass_agent.runner.protocol import trainer_events
from windlass_agent.runner.protocol.trainer_status import MalformedStatus, StatusReader

# What the KEP's path names, and a job of the API has not.
_NAMESPACE, _NAME = "windlass", "job"
PATH = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/{namespace}/trainjobs/{name}/status"
_LARGEST = 64 * 1024


@contextlib.asynccontextmanager
async def status_server(metrics: Path, folder: Path) -> AsyncIterator[dict[str, str]]:
    """Serves on the loopback; what is posted becomes lines of `metrics`.

    Yields the variables that tell a trainer where, and with which token, which lies in `folder`.
    """
    token = secrets.token_urlsafe(32)
    app = _app(metrics, token)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        file = folder / "status-token"
        file.touch(mode=0o600)
        file.write_text(token)
        path = PATH.format(namespace=_NAMESPACE, name=_NAME)
        yield {
            "KUBEFLOW_TRAINER_SERVER_URL": f"http://127.0.0.1:{port}{path}",
            "KUBEFLOW_TRAINER_SERVER_TOKEN": str(file),
            "DISABLE_KUBEFLOW_INTEGRATION": "FALSE",
        }
    finally:
        await runner.cleanup()


def _app(metrics: Path, token: str) -> web.Application:
    reader = StatusReader()

    async def post(request: web.Request) -> web.Response:
        given = request.headers.get("Authorization", "").removeprefix("Bearer ").strip()
        if not secrets.compare_digest(given.encode(), token.encode()):
            return web.json_response({"error": "another token"}, status=401)
        place = (request.match_info["namespace"], request.match_info["name"])
        if place != (_NAMESPACE, _NAME):
            return web.json_response({"error": "another TrainJob"}, status=403)
        try:
            events = list(reader.read(await request.read()))
        except MalformedStatus as error:
            return web.json_response({"error": str(error)}, status=422)
        with metrics.open("ab", buffering=0) as file:
            file.write(b"".join(map(trainer_events.encode, events)))
        return web.json_response({})

    app = web.Application(client_max_size=_LARGEST)
    app.router.add_post(PATH, post)
    return app
