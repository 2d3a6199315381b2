"""HTTP server on a Unix socket that gives a trainer the grades of grader models."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
from aiohttp import web

from windlass_agent.runner.grading.judges import Answer, Judges
from windlass_agent.runner.grading.rewards import GRADES_PATH, GRADES_SOCKET, Reward, Sample
from windlass_agent.runner.protocol import local_socket, trainer_events
from windlass_agent.runner.protocol.link import CallRefused
from windlass_agent.runner.protocol.outcome import Failure

# A step's answers with their examples.
_LARGEST = 2**30
_SAMPLES = msgspec.json.Decoder(list[Sample])


@contextlib.asynccontextmanager
async def grade_server(judges: Judges, metrics: Path, at: Path) -> AsyncIterator[dict[str, str]]:
    """Serves on a socket at `at` and keeps the models loaded meanwhile.

    Every process that can open the socket is served: it lies in the job's own folder. Yields the
    variables that tell a trainer where. Why there are no grades becomes a line of `metrics`.
    """
    runner = web.AppRunner(
        _app(judges, metrics),
        access_log=None,
        handler_cancellation=True,
        shutdown_timeout=0.1,
    )
    await runner.setup()
    ready = asyncio.create_task(_keep_ready(judges))
    try:
        await web.SockSite(runner, local_socket.listening(at)).start()
        yield {GRADES_SOCKET: str(at)}
    finally:
        ready.cancel()
        await runner.cleanup()


async def _keep_ready(judges: Judges) -> None:
    # An agent that refuses this refuses our reports too, which end the attempt.
    with contextlib.suppress(CallRefused):
        await judges.keep_ready()


def _app(judges: Judges, metrics: Path) -> web.Application:
    async def post(request: web.Request) -> web.Response:
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
    app.router.add_post(GRADES_PATH, post)
    return app
