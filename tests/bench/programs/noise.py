"""A tenant that takes all it can: PORT, KEY, and JSON of the jobs and the cold models.

500 streams of events, spread over the jobs, and for each cold model 8 chats that wait for an
engine; what ends is asked anew at once. It prints a line when the streams are open.
"""

import asyncio
import contextlib
import json
import sys

import aiohttp

STREAMS, CHATS = 500, 8
AGAIN_SECONDS = 0.1


async def follow(session: aiohttp.ClientSession, job: str, opened: asyncio.Semaphore) -> None:
    """Follows a job's events for ever."""
    first = True
    while True:
        with contextlib.suppress(aiohttp.ClientError):
            path = f"/v1/fine_tuning/jobs/{job}/events?stream=true"
            async with session.get(path) as answer:
                if first and answer.status == 200:
                    first = False
                    opened.release()
                async for _ in answer.content.iter_any():
                    pass
        await asyncio.sleep(AGAIN_SECONDS)


async def chat(session: aiohttp.ClientSession, model: str) -> None:
    """Asks a model that never comes."""
    body = {"model": model, "messages": [{"role": "user", "content": "Hello?"}]}
    while True:
        with contextlib.suppress(aiohttp.ClientError):
            async with session.post("/v1/chat/completions", json=body) as answer:
                await answer.read()
        await asyncio.sleep(AGAIN_SECONDS)


async def main(port: str, key: str, jobs: list[str], models: list[str]) -> None:
    """Runs until it is ended."""
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=None)
    headers = {"authorization": f"Bearer {key}"}
    opened = asyncio.Semaphore(0)
    async with (
        aiohttp.ClientSession(
            f"http://127.0.0.1:{port}", connector=connector, timeout=timeout, headers=headers
        ) as session,
        asyncio.TaskGroup() as group,
    ):
        for number in range(STREAMS):
            group.create_task(follow(session, jobs[number % len(jobs)], opened))
        for model in models:
            for _ in range(CHATS):
                group.create_task(chat(session, model))
        for _ in range(STREAMS):
            await opened.acquire()
        print("open", flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), json.loads(sys.argv[4])))
