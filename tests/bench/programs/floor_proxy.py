"""The least that a proxy on aiohttp can be: no key, no limit, no usage. PORT and engine's URL."""

import sys

import aiohttp
import uvloop
from aiohttp import web


async def make(engine: str) -> web.Application:
    """The application."""
    session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))

    async def forward(request: web.Request) -> web.StreamResponse:
        body = await request.read()
        headers = {"content-type": "application/json"}
        async with session.post(engine + request.path, data=body, headers=headers) as answer:
            if not answer.content_type.startswith("text/event-stream"):
                return web.Response(body=await answer.read(), content_type="application/json")
            response = web.StreamResponse(headers={"content-type": "text/event-stream"})
            await response.prepare(request)
            async for data in answer.content.iter_any():
                await response.write(data)
            await response.write_eof()
            return response

    application = web.Application()
    application.router.add_post("/{path:.*}", forward)
    return application


if __name__ == "__main__":
    web.run_app(
        make(sys.argv[2]),
        host="127.0.0.1",
        port=int(sys.argv[1]),
        loop=uvloop.new_event_loop(),
        access_log=None,
        print=None,
    )
