"""Sockets of a working folder, which may lie deeper than an address has room for."""

from pathlib import Path

import pytest

from windlass_agent.runner.protocol import local_socket


@pytest.mark.parametrize("folder", ["short", "-".join(["long"] * 40)])
def test_whoever_connects_is_heard(tmp_path: Path, folder: str) -> None:
    path = tmp_path / folder / "grades.sock"
    path.parent.mkdir()
    with (
        local_socket.listening(path) as listener,
        local_socket.connected(path) as client,
        listener.accept()[0] as heard,
    ):
        client.sendall(b"asked")
        assert heard.recv(5) == b"asked"


def test_the_socket_of_an_earlier_runner_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "grades.sock"
    local_socket.listening(path).close()
    with pytest.raises(ConnectionRefusedError):
        local_socket.connected(path)
    with local_socket.listening(path), local_socket.connected(path) as client:
        assert client.getpeername() == str(path)
