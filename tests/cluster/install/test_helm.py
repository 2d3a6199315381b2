"""The chart, installed by helm: the agent joins from its pod, and only dials out."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.cluster.cluster import TestCluster
from tests.cluster.stages.access_site import AccessSite
from tests.cluster.stages.release import Installed, Platform
from tests.cluster.stages.release import installed as a_release
from tests.support.waiting import wait_until


@pytest.fixture
def installed(east: TestCluster) -> Iterator[tuple[Platform, Installed]]:
    with a_release(east) as found:
        yield found


def test_the_agent_joins_and_outlives_its_pod(installed: tuple[Platform, Installed]) -> None:
    plane, release = installed
    wait_until(lambda: plane.is_live(release.id), "the agent joined")
    wait_until(lambda: release.cluster.node in plane.nodes(release.id), "inventory")
    # The one-time key is used up: a new pod comes back by the credential in its Secret.
    (old,) = release.pods()
    release.cluster.kubectl("delete", "pod", old, "-n", release.name, "--wait=true")
    east = release.cluster
    ready = ("rollout", "status", f"deployment/{release.name}", "-n", release.name)
    east.kubectl(*ready, "--timeout=120s")
    assert release.pods() != [old]
    # So does one after an upgrade, which leaves the Secret as it is.
    release.upgrade(logLevel="DEBUG")
    seen = plane.json("GET", f"/clusters/{release.id}")["last_seen_at"]
    wait_until(
        lambda: plane.json("GET", f"/clusters/{release.id}")["last_seen_at"] > seen, "it is back"
    )


@pytest.mark.alone
def test_nothing_need_reach_the_cluster_from_outside(
    installed: tuple[Platform, Installed], tmp_path: Path
) -> None:
    plane, release = installed
    east = release.cluster
    site = AccessSite(plane.windlass, east, tmp_path, release.id)
    wait_until(lambda: plane.is_live(release.id), "the agent joined")
    with east.cut("inbound"):
        with pytest.raises(httpx.TransportError):
            httpx.get(east.api, verify=False, timeout=2)
        # What the control plane wants arrives all the same, and so does what became of it.
        team = site.team("walled")
        site.pod(team, "talker")
        # And so does whoever comes through the tunnel.
        assert "talker" in site.kubectl(team, "get", "pods").stdout
        said = site.kubectl(team, "exec", "-i", "talker", "--", "cat", given="typed")
        assert said.stdout == "typed", said.stderr
        assert "line 0" in site.kubectl(team, "logs", "talker").stdout
