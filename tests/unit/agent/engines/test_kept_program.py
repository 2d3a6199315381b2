"""Ends of kept programs, which are stand-ins here: a child of theirs keeps their output open."""

import asyncio
from pathlib import Path
from typing import Any, cast

import aiohttp
import pytest
from tests.support.waiting import PATIENCE

from windlass_agent.engines.kept import program
from windlass_agent.engines.llamacpp.server import LlamaServer, ServerFailure, ServerSettings
from windlass_agent.engines.sglang.server import SglangServer


class Ended:
    """A program that has ended, whose output has not."""

    returncode = 1

    def __init__(self) -> None:
        self.stdout = asyncio.StreamReader()
        self.stdout.feed_data(b"0.1 E no such model\n")

    async def wait(self) -> int:
        return self.returncode

    def terminate(self) -> None:
        raise ProcessLookupError


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "OUTPUT_SECONDS", 0.05)


async def test_the_end_of_a_server_waits_for_no_child_of_it(tmp_path: Path) -> None:
    settings = ServerSettings(program=tmp_path, model=tmp_path, folder=tmp_path, context=1)
    process = cast("Any", Ended)
    llama = LlamaServer(process(), aiohttp.ClientSession(), tmp_path / "1.sock", settings, ())
    async with asyncio.timeout(PATIENCE):
        with pytest.raises(ServerFailure, match="ended with code 1: no such model"):
            await llama._until_ready()
        await llama.end()
        await SglangServer(process(), aiohttp.ClientSession()).end()
