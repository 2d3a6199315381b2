"""What the segment alone promises: whose it is, and what is left of it."""

import secrets
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from tests.contract.weights.conftest import made

from windlass.weight_versions import SharedMemory, VersionPublisher, WeightsRefused
from windlass.weight_versions.media.shared_memory import MEMORY, is_segment, segment

OWNER = """
import asyncio, sys
from pathlib import Path
import numpy as np
from windlass.weight_versions import ArrayBytes, SharedMemory, VersionPublisher
async def main():
    publisher = VersionPublisher(SharedMemory(sys.argv[1]), Path(sys.argv[2]))
    await publisher.put(1, {"one": ArrayBytes(np.zeros(8, np.uint8), "U8", (8,))})
    print("published", flush=True)
    sys.stdin.read()
asyncio.run(main())
"""


def modes(root: Path) -> set[int]:
    return {stat.S_IMODE(path.lstat().st_mode) for path in root.rglob("*") if path.is_file()}


async def test_it_is_its_owner_s_alone_and_goes_when_it_is_closed(tmp_path: Path) -> None:
    name = f"test-{secrets.token_hex(6)}"
    medium = SharedMemory(name)
    publisher = VersionPublisher(medium, tmp_path)
    await publisher.put(1, made())
    assert medium.root.parent == MEMORY
    assert stat.S_IMODE(medium.root.lstat().st_mode) == 0o700
    assert modes(medium.root) == {0o600}
    with pytest.raises(WeightsRefused, match="an owner that lives") as refusal:
        SharedMemory(name)
    assert refusal.value.reason == "medium_in_use"
    assert (await medium.manifest(1)).version == 1, "the one that was refused left it alone"
    publisher.close()
    await medium.close()
    assert not medium.root.exists()


async def test_what_a_killed_owner_left_goes_with_the_next(tmp_path: Path) -> None:
    name = f"test-{secrets.token_hex(6)}"
    command = [sys.executable, "-c", OWNER, name, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as owner:
        assert owner.stdout
        assert owner.stdout.readline() == b"published\n"
        with pytest.raises(WeightsRefused, match="an owner that lives"):
            SharedMemory(name)
        owner.send_signal(signal.SIGKILL)
        owner.wait()
    assert (segment(name) / f"{1:016}" / "weights.bin").exists()
    medium = SharedMemory(name)
    with pytest.raises(WeightsRefused, match="no version 1"):
        await medium.manifest(1)
    await medium.close()
    assert not segment(name).exists()


def test_a_name_that_others_took_is_not_used() -> None:
    name = f"test-{secrets.token_hex(6)}"
    root = segment(name)
    root.mkdir(0o755)
    try:
        with pytest.raises(WeightsRefused, match="somebody else") as refusal:
            SharedMemory(name)
        assert refusal.value.reason == "medium_in_use"
        assert not is_segment(root)
    finally:
        root.rmdir()
    root.symlink_to("/tmp")
    try:
        assert not is_segment(root)
        with pytest.raises((WeightsRefused, FileExistsError)):
            SharedMemory(name)
    finally:
        root.unlink()


@pytest.mark.parametrize("name", ["", "../x", "a/b", "a" * 101, "a b", "a\n"])
def test_names_are_plain_words(name: str) -> None:
    with pytest.raises(ValueError, match="is no name"):
        segment(name)
