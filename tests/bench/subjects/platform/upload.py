"""One GiB as a file: through HTTP into the local store, beside a loop that writes and digests."""

import hashlib
import http.client
import os
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

from tests.bench import machine
from tests.bench.figures import Figure, Options, at_least, at_most, plain
from tests.bench.plant import NO_AGENT, Plant, single

MIB = 2**20
_BOUNDARY = "bench-boundary"
_HEAD = (
    f"--{_BOUNDARY}\r\n"
    'content-disposition: form-data; name="purpose"\r\n\r\nuser_data\r\n'
    f"--{_BOUNDARY}\r\n"
    'content-disposition: form-data; name="file"; filename="data.bin"\r\n'
    "content-type: application/octet-stream\r\n\r\n"
).encode()
_TAIL = f"\r\n--{_BOUNDARY}--\r\n".encode()


async def measure(options: Options) -> list[Figure]:
    """The median of pairs, one after the other; the greatest growth beyond a server at rest."""
    size = (256 if options.quick else 1024) * MIB
    block = os.urandom(MIB)
    ours, floor, ratios = [], [], []
    with single({**NO_AGENT, "files": {"max_bytes": 2 * size}}) as plant:
        rested = machine.memory_bytes(plant.pid(), "VmRSS")
        machine.forget_peak(plant.pid())
        _upload(plant, block, 16 * MIB)
        for _ in range(1 if options.quick else 3):
            floor.append(_loop(plant.folder / "floor", block, size))
            ours.append(_upload(plant, block, size))
            ratios.append(floor[-1] / ours[-1])
        growth = machine.memory_bytes(plant.pid(), "VmHWM") - rested
    rate = size / MIB / statistics.median(ours)
    return [
        at_least("upload_to_floor", 100 * statistics.median(ratios), "%", 60),
        plain("upload", rate, "MiB/s").beside(
            "write and SHA-256 loop", size / MIB / statistics.median(floor)
        ),
        at_most("upload_memory", growth / MIB, "MiB", 80),
    ]


def _loop(path: Path, block: bytes, size: int) -> float:
    """Seconds to write and digest as much and make it durable, in this process."""
    began, digest = time.perf_counter(), hashlib.sha256()
    with path.open("wb", buffering=0) as file:
        for _ in range(size // len(block)):
            digest.update(block)
            file.write(block)
        os.fsync(file.fileno())
    took = time.perf_counter() - began
    path.unlink()
    return took


def _upload(plant: Plant, block: bytes, size: int) -> float:
    """Seconds of one upload, whose file is deleted afterwards."""
    took = timed_upload(plant, block, size)
    with plant.client() as client:
        for file in client.openai.files.list():
            client.openai.files.delete(file.id)
    return took


def timed_upload(plant: Plant, block: bytes, size: int, *, project: str = "") -> float:
    """Seconds of one upload, into the default project or into another one."""
    connection = http.client.HTTPConnection("127.0.0.1", plant.windlass.port, timeout=600)
    headers = {
        "authorization": f"Bearer {plant.windlass.owner_key}",
        "content-type": f"multipart/form-data; boundary={_BOUNDARY}",
        "content-length": str(len(_HEAD) + size + len(_TAIL)),
        **({"openai-project": project} if project else {}),
    }
    began = time.perf_counter()
    connection.request("POST", "/v1/files", body=_form(block, size), headers=headers)
    answer = connection.getresponse()
    content = answer.read()
    took = time.perf_counter() - began
    connection.close()
    if answer.status != 200:
        raise RuntimeError(f"the upload failed: {answer.status} {content[:500]!r}")
    return took


def _form(block: bytes, size: int) -> Iterator[bytes]:
    yield _HEAD
    for _ in range(size // len(block)):
        yield block
    yield _TAIL
