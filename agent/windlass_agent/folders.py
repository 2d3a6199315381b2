"""The agent's own folders and files: private, and in one agent's hands at a time."""

import fcntl
import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# A Unix socket's path holds 108 bytes on Linux, 104 on macOS.
SOCKET_PATH_BYTES = 100


def private_folder(path: Path) -> Path:
    """The folder, made with mode 0700; raises PermissionError when another user owns it."""
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    if path.stat().st_uid != os.getuid():
        raise PermissionError(f"{path} belongs to another user: choose another folder")
    path.chmod(0o700)
    return path


def socket_folder(data: Path) -> Path:
    """The folder of this agent's sockets: the same in every life, and short enough for a socket."""
    folder = data.resolve() / "run"
    if len(str(folder / ("x" * 32))) > SOCKET_PATH_BYTES:
        name = hashlib.sha256(str(folder).encode()).hexdigest()[:12]
        folder = Path(tempfile.gettempdir()) / f"windlass-agent-{os.getuid()}-{name}"
    return private_folder(folder)


def write_private(path: Path, content: bytes) -> None:
    """Replaces a file of mode 0600, durably and at once."""
    draft = path.with_name(f".{path.name}.draft")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


@contextmanager
def sole_agent(data: Path) -> Iterator[None]:
    """Holds the folder; raises BlockingIOError while another living agent does."""
    with (private_folder(data) / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
