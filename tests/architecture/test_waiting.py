"""Tests wait for what they need, not for a time: no fixed sleep outside the waiting helpers."""

import ast
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parents[1]

# What may pause for a fixed time, and why: each of these plays a part with a pace of its own.
PACED = {
    "support/waiting.py": "the helpers themselves",
    "support/agents": "heartbeats, and programs that wait for their orders",
    "support/fakes/stub_upstream.py": "a server that waits before it closes",
    "support/environments/sglang/stand_in": "the pace of an engine that says words",
    "support/services/jobs_plane.py": "an agent's heartbeat",
    "bench/programs": "the pace of a load",
    "bench/stub_agent.py": "an agent's heartbeat",
    "bench/subjects": "the time before or for which something is measured",
    "cluster/provision": "keeps clusters, outside pytest",
    "reaper.py": "ends processes after the run, outside any test",
    "e2e/test_rogue_agent.py": "an agent's heartbeat",
    "faults/test_many_agents.py": "the intervals at which agents and the server are killed",
    "faults/tunnel/test_tunnel_killed.py": "the interval at which a client asks",
    "integration/gateway/test_ingress.py": "the silence that connections outlive",
    "integration/gateway/test_listener_bounds.py": "clients that send slowly",
    "integration/gateway/test_outage.py": "the pace of an engine that never stops",
    "integration/tenancy/test_ends_with_its_key.py": "the pace of an engine that never stops",
    "integration/tuning/in_engine/taught_engine.py": "the pace of an agent and its engine",
    "integration/tenancy/mail/test_smtp.py": "a mail server that dawdles",
    "integration/tunnel/test_sockets.py": "a peer that reads slowly",
    "integration/tunnel/test_tls.py": "a peer that reads slowly",
}


def fixed_sleeps(source: str) -> Iterator[int]:
    """Yields the lines that sleep for a positive constant, as a number or under a name."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("time.sleep", "asyncio.sleep"):
            (seconds,) = node.args
            is_number = isinstance(seconds, ast.Constant) and bool(seconds.value)
            if is_number or (isinstance(seconds, ast.Name) and seconds.id.isupper()):
                yield node.lineno


def is_paced(path: str) -> bool:
    return any(path == one or path.startswith(f"{one}/") for one in PACED)


def test_no_test_sleeps_for_a_fixed_time() -> None:
    found = [
        f"{path.relative_to(TESTS)}:{line}"
        for path in sorted(TESTS.rglob("*.py"))
        if not is_paced(path.relative_to(TESTS).as_posix())
        for line in fixed_sleeps(path.read_text())
    ]
    assert not found, "wait with tests.support.waiting instead"


def test_whatever_may_pause_does() -> None:
    for name in PACED:
        top = TESTS / name
        files = [top] if top.is_file() else list(top.rglob("*.py"))
        assert any(list(fixed_sleeps(file.read_text())) for file in files), name


def test_a_fixed_sleep_is_found_under_any_name() -> None:
    assert list(fixed_sleeps("time.sleep(0.1)\nasyncio.sleep(PAUSE)\nasyncio.sleep(0)")) == [1, 2]
    assert not list(fixed_sleeps("asyncio.sleep(expires_at - time.time())\nengine.sleep(1)"))
