"""Nodes on which pods seem to run until somebody says how they ended: `players` do.

They are played by a kwok of the test's own; the cluster's ends pods at once and without a word.
"""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml
from tests.cluster.cluster import TestCluster
from tests.cluster.provision.control_plane import kwok

PLAYER = "rehearsal"


@contextmanager
def rehearsing(cluster: TestCluster, folder: Path, nodes: int) -> Iterator[dict[str, str]]:
    """Such nodes until the end of the block, which gets the labels that lead to them."""
    site = cluster.own()
    stages = yaml.safe_load_all((site.folder / "kwok-stages.yaml").read_text())
    kept = [one for one in stages if one["metadata"]["name"] != "pod-complete"]
    config = folder / f"kwok-{site.name}.yaml"
    config.write_text(yaml.safe_dump_all(kept))
    # Among the cluster's own programs, and gone with this process.
    command = ["setpriv", "--pdeathsig", "KILL", "nsenter", "--net", f"--target={site.pid}"]
    with config.with_suffix(".log").open("wb") as log:
        player = subprocess.Popen(
            [*command, *kwok(site, config, player=PLAYER)], stdout=log, stderr=log
        )
    try:
        names = cluster.kwok_nodes(nodes, player=PLAYER)
        yield {"kwok": names[0].rpartition("-")[0]}
    finally:
        player.kill()
        player.wait()
