"""Servers of gRPC allow the pings that the channels of this project send."""

import re
from pathlib import Path

import pytest

from windlass.core.rpc.clients import CHANNEL_OPTIONS, PINGED_OPTIONS
from windlass.core.rpc.server import SERVER_OPTIONS

ROOT = Path(__file__).parents[2]
OPTIONS = {"PINGED_OPTIONS": PINGED_OPTIONS, "SERVER_OPTIONS": SERVER_OPTIONS}
_SERVER = re.compile(r"grpc\.aio\.server\((?:(?!grpc\.aio)(?!options=).)*options=(\w+)", re.DOTALL)
SERVED = [
    (path.relative_to(ROOT).as_posix(), text.count("grpc.aio.server("), _SERVER.findall(text))
    for folder in ("services/windlass", "agent/windlass_agent")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if "grpc.aio.server(" in (text := path.read_text())
]


def test_servers_are_found() -> None:
    assert len(SERVED) >= 4


@pytest.mark.parametrize(("path", "servers", "options"), SERVED)
def test_a_server_expects_pings_as_often_as_they_come(
    path: str, servers: int, options: list[str]
) -> None:
    # Else it ends the connection of a client that is idle.
    assert len(options) == servers
    most = dict(CHANNEL_OPTIONS)["grpc.keepalive_time_ms"]
    for one in options:
        assert 0 < dict(OPTIONS[one])["grpc.http2.min_ping_interval_without_data_ms"] < most
