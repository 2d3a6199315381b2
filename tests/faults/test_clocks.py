"""Clocks that are an hour wrong, each its own way: whose they are is neither refused nor late.

The front door is an hour ahead of the true time, the services that run jobs an hour behind it,
and so two hours apart; agents are wrong either way.
"""

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.faults.kill_points.killable import INSTANT
from tests.faults.lone_agent import LoneAgent
from tests.faults.site import Site
from tests.faults.skewed import clock
from tests.support.environments import postgres
from tests.support.factories.feather import make_feather
from tests.support.fakes.serving_stack import running_stack
from tests.support.processes.split import socket_of, two_processes
from tests.support.processes.windlass import running
from tests.support.services.front import chat as three_words
from tests.support.waiting import wait_until

from windlass.targets import MODULES

pytestmark = [pytest.mark.faults]

HOUR = 3600
# What agents call.
BEHIND = ("clusters", "jobs", "sessions")
AHEAD = tuple(name for name in MODULES if name not in (*BEHIND, "agent"))
# An agent asks for the next credential at about half of this.
CREDENTIAL_SECONDS = 6
# What the fastest of all clocks may differ by.
TOLERANCE_SECONDS = 5


@pytest.fixture(scope="module")
def site(postgres_url: str, schema_template: str) -> Iterator[Site]:
    with (
        postgres.reachable_folder() as folder,
        postgres.fresh_database(postgres_url, template=schema_template) as url,
    ):
        made = two_processes(
            folder / "data",
            url.replace("+psycopg", ""),
            {"ahead": AHEAD, "behind": BEHIND},
            {"agents": {"credential_seconds": CREDENTIAL_SECONDS}},
        )
        for half, seconds in (("ahead", HOUR), ("behind", -HOUR)):
            made.environments[half] = clock(made.data, seconds, INSTANT)
        with running(made):
            site = Site(made)
            site.import_base(make_feather(folder / "feather"))
            yield site


@pytest.fixture(
    scope="module",
    params=[("agent-ahead", HOUR), ("agent-behind", -HOUR)],
    ids=lambda param: str(param[0]),
)
def agent(site: Site, request: pytest.FixtureRequest) -> Iterator[LoneAgent]:
    """An agent with a wrong clock, the only one."""
    agent = agent_of(site, *request.param)
    agent.start()
    try:
        yield agent
        # Nothing else is to be placed there once it is gone.
        site.http.delete(f"/v1/clusters/{cluster_of(site)['id']}").raise_for_status()
    finally:
        agent.stop()


def test_a_job_succeeds_and_its_times_are_in_order(site: Site, agent: LoneAgent) -> None:
    began = time.time() - TOLERANCE_SECONDS
    first = wait_until(lambda: credential(agent), "an enrolment")
    job_id = site.create(site.upload(), epochs=2, backend="instant")
    job = site.assert_succeeded_once(job_id)
    wait_until(lambda: credential(agent) != first, "a renewal")
    assert cluster_of(site)["live"]
    assert job["windlass"]["attempt"] == 1
    told = [event["created_at"] for event in site.events(job_id)]
    times = [began, job["created_at"], *told, job["finished_at"], time.time() + TOLERANCE_SECONDS]
    assert times == sorted(times)


async def test_a_model_answers_by_its_tunnel_and_is_billed(site: Site, agent: LoneAgent) -> None:
    """The model is a serving stack's, since one of ours would need an engine."""
    async with running_stack() as stack:
        stack.handler = three_words
        await asyncio.to_thread(chat, site, stack.url, f"of-{agent.name}")


def chat(site: Site, url: str, model: str) -> None:
    http, stack = site.http, {"cluster_id": cluster_of(site)["id"], "url": url}
    http.put(f"/v1/stacks/{model}", json=stack).raise_for_status()
    adopted = {"id": model, "model": "theirs"}
    http.post(f"/v1/stacks/{model}/models", json=adopted).raise_for_status()
    client = site.windlass.openai(max_retries=0)
    asked: Any = {"model": model, "messages": [{"role": "user", "content": "Hi"}]}
    assert client.chat.completions.create(**asked).usage.completion_tokens == 3
    assert len(list(client.chat.completions.create(**asked, stream=True))) >= 3
    wait_until(lambda: site.usage_of(model, "chat")[0] == 2, "usage", 30)
    assert site.usage_of(model, "chat") == (2, 14)


def cluster_of(site: Site) -> dict[str, Any]:
    """The one cluster that there is."""
    (found,) = site.get("/clusters")["data"]
    return dict(found)


def agent_of(site: Site, name: str, seconds: int) -> LoneAgent:
    """An agent with a wrong clock; so has its runner, since nothing walls it in."""
    socket = socket_of(site.windlass, BEHIND)
    environment = clock(site.windlass.data, seconds, INSTANT)
    unwalled = environment | {"WINDLASS_AGENT_CONFINEMENT": "off"}
    return LoneAgent(site, name, f"unix:{socket}", environment=unwalled)


def credential(agent: LoneAgent) -> str:
    """The credential that the agent shows."""
    file = agent.data / "credential"
    return file.read_text() if file.exists() else ""
