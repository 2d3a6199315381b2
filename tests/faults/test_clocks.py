"""Clocks that are an hour wrong, each its own way: whose they are is neither refused nor late.

The front door is an hour ahead of the true time, the services that run jobs an hour behind it,
and so two hours apart; agents are wrong either way.
"""

import base64
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tests.faults.kill_points.killable import INSTANT
from tests.faults.lone_agent import LoneAgent
from tests.faults.site import Site
from tests.faults.skewed import clock
from tests.support.environments import postgres
from tests.support.factories.feather import make_feather
from tests.support.processes.windlass import Windlass, free_port, running
from tests.support.waiting import wait_until

from windlass.core.app import runtime_dir
from windlass.sessions.listener.certificates import own_certificate
from windlass.targets import MODULES

pytestmark = [pytest.mark.faults]

HOUR = 3600
BEHIND = ("clusters", "jobs")
AHEAD = tuple(name for name in MODULES if name not in (*BEHIND, "agent"))
# An agent asks for the next credential at about half of this.
CREDENTIAL_SECONDS = 6
# What the fastest of all clocks may differ by.
TOLERANCE_SECONDS = 5
MASTER_KEY = base64.b64encode(os.urandom(32)).decode()


@pytest.fixture(scope="module")
def site(postgres_url: str, schema_template: str) -> Iterator[Site]:
    with (
        postgres.reachable_folder() as folder,
        postgres.fresh_database(postgres_url, template=schema_template) as url,
    ):
        made = two_processes(folder / "data", url.replace("+psycopg", ""))
        with running(made):
            site = Site(made)
            site.import_base(make_feather(folder / "feather"))
            yield site


def two_processes(data: Path, url: str) -> Windlass:
    """An installation of two processes that call each other over TLS."""
    data.mkdir(mode=0o711)
    certificate, key, ca = own_certificate(data / "tls", {"127.0.0.1"})
    halves = {"ahead": (AHEAD, HOUR), "behind": (BEHIND, -HOUR)}
    ports = {half: free_port() for half in halves}
    made = Windlass(data, free_port())
    for half, (targets, seconds) in halves.items():
        (other,) = set(halves) - {half}
        document = {
            "targets": list(targets),
            "data_dir": str(data),
            "http": {"port": made.port},
            "grpc": {
                "listen": f"127.0.0.1:{ports[half]}",
                "tls": {"certificate": str(certificate), "key": str(key)},
                "peer_ca": str(ca),
            },
            "peers": dict.fromkeys(halves[other][0], f"grpcs://127.0.0.1:{ports[other]}"),
            "database": {"url": url, "migrate": False, "pool_size": 4},
            "master_key": {"key": MASTER_KEY},
            "agents": {"credential_seconds": CREDENTIAL_SECONDS},
        }
        made.configs[half] = data / f"{half}.yaml"
        made.configs[half].write_text(yaml.safe_dump(document))
        made.environments[half] = clock(data, seconds, INSTANT)
    return made


@pytest.mark.parametrize(("name", "seconds"), [("agent-ahead", HOUR), ("agent-behind", -HOUR)])
def test_a_job_succeeds_and_its_times_are_in_order(site: Site, name: str, seconds: int) -> None:
    began = time.time() - TOLERANCE_SECONDS
    agent = agent_of(site, name, seconds)
    agent.start()
    try:
        first = wait_until(lambda: credential(agent), "an enrolment")
        job_id = site.create(site.upload(), epochs=2, backend="instant")
        job = site.assert_succeeded_once(job_id)
        wait_until(lambda: credential(agent) != first, "a renewal")
        (cluster,) = site.get("/clusters")["data"]
        # Nothing else is to be placed there once its agent is gone.
        site.http.delete(f"/v1/clusters/{cluster['id']}").raise_for_status()
    finally:
        agent.stop()
    assert cluster["live"]
    assert job["windlass"]["attempt"] == 1
    told = [event["created_at"] for event in site.events(job_id)]
    times = [began, job["created_at"], *told, job["finished_at"], time.time() + TOLERANCE_SECONDS]
    assert times == sorted(times)


def agent_of(site: Site, name: str, seconds: int) -> LoneAgent:
    """An agent with a wrong clock; so has its runner, since nothing walls it in."""
    socket = runtime_dir(site.windlass.data) / "clusters-jobs.sock"
    environment = clock(site.windlass.data, seconds, INSTANT)
    unwalled = environment | {"WINDLASS_AGENT_CONFINEMENT": "off"}
    return LoneAgent(site, name, f"unix:{socket}", environment=unwalled)


def credential(agent: LoneAgent) -> str:
    """The credential that the agent shows."""
    file = agent.data / "credential"
    return file.read_text() if file.exists() else ""
