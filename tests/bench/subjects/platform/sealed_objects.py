"""One GiB up and down in a project whose objects are sealed, beside one whose are not."""

import os
import statistics
import time

from tests.bench import machine
from tests.bench.figures import Figure, Options, at_most, plain
from tests.bench.plant import NO_AGENT, Plant, single
from tests.bench.subjects.platform.upload import MIB, timed_upload

_READ = 2**20


async def measure(options: Options) -> list[Figure]:
    """Medians of runs, sealed and plain in turn; the greatest growth beyond a server at rest."""
    size = (256 if options.quick else 1024) * MIB
    block = os.urandom(MIB)
    took: dict[tuple[str, str], list[float]] = {}
    with single({**NO_AGENT, "files": {"max_bytes": 2 * size}}) as plant:
        sealed = _sealed_project(plant)
        rested = machine.memory_bytes(plant.pid(), "VmRSS")
        machine.forget_peak(plant.pid())
        for _ in range(1 if options.quick else 3):
            for kind, project in (("plain", ""), ("sealed", sealed)):
                up = timed_upload(plant, block, size, project=project)
                took.setdefault(("up", kind), []).append(up)
                took.setdefault(("down", kind), []).append(_read_and_delete(plant, project, size))
        growth = machine.memory_bytes(plant.pid(), "VmHWM") - rested
    rates = {key: size / MIB / statistics.median(found) for key, found in took.items()}
    return [
        plain("sealed_upload", rates["up", "sealed"], "MiB/s").beside(
            "upload that is not sealed", rates["up", "plain"]
        ),
        plain("sealed_download", rates["down", "sealed"], "MiB/s").beside(
            "download that is not sealed", rates["down", "plain"]
        ),
        at_most("sealed_memory", growth / MIB, "MiB", 80),
    ]


def _sealed_project(plant: Plant) -> str:
    """A project with a data key, which the installation's own key wraps."""
    with plant.windlass.http() as http:
        made = http.post("/v1/organization/projects", json={"name": "Sealed"}).json()["id"]
        body = {"rotate_data_key": True}
        http.post(f"/v1/organization/projects/{made}", json=body).raise_for_status()
    return str(made)


def _read_and_delete(plant: Plant, project: str, size: int) -> float:
    """Seconds to read the one file of a project."""
    headers = {"openai-project": project} if project else {}
    with plant.windlass.http() as http:
        (file,) = http.get("/v1/files", headers=headers).json()["data"]
        path, came, began = f"/v1/files/{file['id']}", 0, time.perf_counter()
        with http.stream("GET", f"{path}/content", headers=headers, timeout=600) as answer:
            for part in answer.iter_raw(_READ):
                came += len(part)
        took = time.perf_counter() - began
        if came != size:
            raise RuntimeError(f"{came} bytes came instead of {size}")
        http.delete(path, headers=headers).raise_for_status()
    return took
