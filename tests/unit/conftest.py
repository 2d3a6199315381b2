"""Unit tests open no connection: what needs one is under tests/integration."""

import socket
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuses every address but those of Unix sockets."""
    for name in ("bind", "connect", "connect_ex"):
        monkeypatch.setattr(socket.socket, name, _refusing(getattr(socket.socket, name)))


def _refusing(method: Any) -> Any:
    def call(self: socket.socket, address: Any) -> Any:
        if self.family != socket.AF_UNIX:
            pytest.fail(f"a unit test opens a connection: {address}")
        return method(self, address)

    return call
