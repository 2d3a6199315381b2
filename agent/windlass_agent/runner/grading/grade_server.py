"""Local HTTP server that gives a trainer the grades of grader models."""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
from aiohttp import web

from windlass_agent.runner.grading.judges import Answer, Judges
from windlass_agent.runner.grading.rewards import GRADES_TOKEN, GRADES_URL, Reward, Sample
from windlass_agent.runner.protocol import trainer_events
from windlass_agent.runner.protocol.link import CallRefused
from windlass_agent.runner.protocol.outcome import Failure

_PATH = "/grade"
# A step's answers with their examples.
_LARGEST = 2**30
_SAMPLES = msgspec.json.Decoder(list[Sample])


@contextlib.asynccontextmanager
async def grade_server(judges: Judges, metrics: Path) -> AsyncIterator[dict[str, str]]:
    """Serves on the loopback interface and keeps the models loaded meanwhile.

    Yields the variables that tell a trainer where, and with which token. Why there are no grades
    becomes a line of `metrics`.
    """
    token = secrets.token_urlsafe(32)
    runner = web.AppRunner(
        _app(judges, metrics, token),
        access_log=None,
        handler_cancellation=True,
        shutdown_timeout=0.1,
    )
    await runner.setup()
    ready = asyncio.create_task(_keep_ready(judges))
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        port = runner.addresses[0][1]
        yield {GRADES_URL: f"http://127.0.0.1:{port}{_PATH}", GRADES_TOKEN: token}
    finally:
        ready.cancel()
        await runner.cleanup()


async def _keep_ready(judges: Judges) -> None:
    # Whoever refuses us refuses our reports too, which end the attempt.
    with contextlib.suppress(CallRefused):
        await judges.keep_ready()


def _app(judges: Judges, metrics: Path, token: str) -> web.Application:
    async def post(request: web.Request) -> web.Response:
        given = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if not secrets.compare_digest(given.encode(), token.encode()):
            return web.Response(status=401)
        answers: list[Answer] = [
            (each.sample, each.item.encode()) for each in _SAMPLES.decode(await request.read())
        ]
        try:
            grades = await judges.grades(answers)
        except Failure as failure:
            event = trainer_events.Failed(
                code=failure.code, message=failure.message, param=failure.param
            )
            with metrics.open("ab", buffering=0) as file:
                file.write(trainer_events.encode(event))
            return web.Response(status=503)
        except CallRefused:
            return web.Response(status=503)
        rewards = [Reward(reward=each.reward, fault=each.fault) for each in grades]
        return web.Response(body=msgspec.json.encode(rewards))

    app = web.Application(client_max_size=_LARGEST)
    app.router.add_post(_PATH, post)
    return app
