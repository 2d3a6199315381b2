"""The page on models that are not ready prints the words that the code says."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.inference.domain import (
    RUNNING,
    Engine,
    InferencePolicy,
    Name,
    Rows,
    Serving,
    View,
    WantedVersion,
)
from windlass.inference.planning import Planner
from windlass.inference.routing import routes_of
from windlass.kubernetes.resources import NVIDIA_GPU
from windlass.modelfiles.footprint import Footprint
from windlass.modelfiles.quantization import Quantization

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "how-to" / "why-is-my-model-not-ready.md").read_text()
SOURCES = "\n".join(
    re.sub(r'"\s*\n\s*f?"', "", path.read_text())
    for folder in (
        "services/windlass/inference",
        "services/windlass/modelfiles",
        "agent/windlass_agent",
    )
    for path in (ROOT / folder).rglob("*.py")
)
_ROW = re.compile(r"^\| `([^|`]+)`", re.MULTILINE)
SAID = _ROW.findall(PAGE)
# What is said before an engine has failed.
WAITING = _ROW.findall(PAGE.partition("## What an engine that failed says")[0])
_FILLED = re.compile(r"…|\d+(?:\.\d+)?|'[a-z]+'")
GIB = 2**30
NOW = 1_000_000.0
NAME = Name(
    "tiny", "proj-a", "org-a", "tiny", "tiny",
    Footprint(
        weight_bytes=30 * GIB, kv_bytes=131_072, windowed_kv_bytes=0, window=0, adapter_bytes=1,
        heads=32, kv_heads=8, context_length=8192, weight_width=4,
    ),
)  # fmt: skip
ADAPTER = Name("ft:tiny", "proj-a", "org-a", "tuned", "tiny")


OTHER = Engine(
    "eng-0", "other", "other", "proj-a", "org-a", "east", "builtin", RUNNING, 1, 1, (),
    NOW - 30, NOW - 30,
)  # fmt: skip


def machine(**capacity: Any) -> pb.Cluster:
    """A machine of two GPUs, whose memory nobody knows, with the built-in engine and vLLM."""
    found: dict[str, Any] = {
        "engines": ["builtin", "vllm"], "engine_slots": 4, "gpus": 2, "memory_bytes": 64 * GIB
    }  # fmt: skip
    return pb.Cluster(
        id="east", live=True, embedded=True, shared=True, roles=["engines"], executor="process",
        capacity=pb.Capacity(**(found | capacity)),
    )  # fmt: skip


def nodes() -> pb.Cluster:
    """A cluster of two nodes with four GPUs each."""
    shape = pb.NodeShape(resource=NVIDIA_GPU, devices=4, memory_bytes=500 * GIB, nodes=2)
    found = machine(gpus=8, node_shapes=[shape], each_engine=pb.EngineShare(gpus=1))
    found.executor = "kubernetes"
    return found


def foreign() -> pb.Cluster:
    found = machine()
    found.shared = False
    return found


def planned(
    cluster: pb.Cluster,
    name: Name = NAME,
    *,
    quotas: dict[str, int] | None = None,
    most: int = 8,
    **serving: Any,
) -> str:
    """Why the planner starts no engine of a model that should have one, beside another's."""
    wanted = [
        Serving("proj-a", "other", "org-a", "other", "other", 1, NOW - 90),
        Serving("proj-a", "tiny", "org-a", "tiny", "tiny", 1, NOW - 60, **serving),
    ]
    names = {"tiny": name, "other": Name("other", "proj-a", "org-a", "other", "other")}
    view = View(names=names, statuses={}, clusters={"east": cluster})
    rows = Rows(NOW, [OTHER], [], wanted, quotas=quotas or {})
    plan = Planner(rows, view, InferencePolicy("builtin", most, 4, 600, 1e9), lambda: "e").plan()
    assert not plan.creates
    (error,) = (words for want, words in plan.errors if want.version_id == "tiny")
    return error


def waited(
    *,
    phase: "pb.Phase.ValueType | None" = None,
    reason: str = "",
    version: str = "tiny",
    has_engine: bool = True,
    connected: bool = True,
    **engine: Any,
) -> str:
    """What the route of a model waits for, whose engine is in some phase."""
    made = replace(OTHER, id="eng-1", version_id="tiny", model="tiny", adapters=("tuned",))
    endpoint = "unix:///x" if phase == pb.PHASE_RUNNING else ""
    status = pb.WorkloadStatus(phase=phase or pb.PHASE_UNSPECIFIED, endpoint=endpoint)
    status.reason = reason
    view = View(
        names={"tiny": NAME, "tuned": ADAPTER},
        statuses={"eng-1": status} if phase else {},
        clusters={"east": machine()} if connected else {},
    )
    wants = [WantedVersion(one, "tiny", NOW, NOW) for one in ("tiny", "tuned")]
    engines = [replace(made, **engine)] if has_engine else []
    return routes_of(Rows(NOW, engines, wants), view, "builtin")[version].waits_for


def provoked() -> Iterator[str]:
    """Yields what is said of one model in every way in which it is not ready."""
    yield planned(machine(engines=["builtin"]), engine="vllm")
    yield planned(machine(), engine="vllm", sleep_seconds=60)
    yield planned(foreign())
    yield planned(machine(), engine="vllm", nodes=2, gpus=1)
    yield planned(machine(), gpus=4)
    yield planned(machine(gpus=0, memory_bytes=16 * GIB))
    yield planned(nodes(), gpus=8)
    yield planned(machine(), accelerator="H100")
    yield planned(nodes(), priority="high")
    yield planned(machine(), memory_bytes=1000 * GIB)
    yield planned(machine(), replace(NAME, quantization=Quantization("awq", 4)))
    yield planned(machine(), most=1)
    yield planned(machine(), quotas={"project": 1})
    yield waited(has_engine=False)
    yield waited(connected=False)
    yield waited()
    yield waited(phase=pb.PHASE_PENDING, reason="Queued")
    for reason in ("Downloading", "WaitingToStart", ""):
        yield waited(phase=pb.PHASE_STARTING, reason=reason)
    yield waited(phase=pb.PHASE_SLEEPING, asleep=True)
    yield waited(phase=pb.PHASE_SLEEPING)
    yield waited(engine="adopted")
    yield waited(phase=pb.PHASE_RUNNING, version="tuned")
    yield waited(phase=pb.PHASE_RUNNING, version="tuned", adapters=())


def is_of(row: str, message: str) -> bool:
    """Returns True for a message that begins with a row of the page, numbers and names aside."""
    words = map(re.escape, _FILLED.split(row))
    return re.match(".+?".join(words), message) is not None


def test_the_page_has_them() -> None:
    assert 15 < len(WAITING) < len(SAID)


@pytest.mark.parametrize("said", SAID)
def test_what_it_prints_is_said(said: str) -> None:
    # Numbers and names are filled in.
    parts = re.split(r"…|\d+\.\d+ GiB|\d+|'[a-z]+'|project", said)
    words = [part.strip(" .:") for part in parts if len(part.strip(" .:'s")) > 6]
    assert words
    assert all(part in SOURCES for part in words), words


def test_each_row_is_provoked_and_what_is_said_is_a_row() -> None:
    messages = list(provoked())
    rows = [[row for row in WAITING if is_of(row, message)] for message in messages]
    assert [message for message, found in zip(messages, rows, strict=True) if not found] == []
    # The longest, where a row is the beginning of another.
    said = {max(found, key=len) for found in rows}
    assert set(WAITING) - said == set()
