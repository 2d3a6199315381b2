"""Programs that servers and agents start while calls of gRPC go on."""

import os
import subprocess
import sys

import pytest

PROGRAMS = 400
# Packages as processes load them: theirs first.
SCRIPT = """
import asyncio, sys
import {package}
import grpc, uvloop

async def echo(request, context):
    return request

async def main():
    server = grpc.aio.server()
    method = grpc.unary_unary_rpc_method_handler(echo)
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("T", {{"Echo": method}})])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{{port}}") as channel:
        call = channel.unary_unary("/T/Echo")

        async def ask():
            while True:
                await call(bytes(1000))

        asking = [asyncio.create_task(ask()) for _ in range(20)]
        codes = []
        for _ in range({programs}):
            process = await asyncio.create_subprocess_exec("true")
            codes.append(await process.wait())
        for one in asking:
            one.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
    print([code for code in codes if code])

uvloop.run(main())
"""


@pytest.mark.parametrize("package", ["windlass", "windlass_agent"])
def test_none_of_them_crashes(package: str) -> None:
    script = SCRIPT.format(package=package, programs=PROGRAMS)
    environment = {name: one for name, one in os.environ.items() if not name.startswith("GRPC_")}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, env=environment, check=False
    )
    assert (done.stdout, done.returncode) == (b"[]\n", 0), done.stderr[-2000:]
