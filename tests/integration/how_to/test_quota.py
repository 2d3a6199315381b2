"""The how-to on quota, run as it is printed, against a real server and an agent's calls.

`tests/cluster/install/test_how_to.py` runs it once more where Kueue brings it about.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.cli.test_clusters import GPU, observed, table
from tests.support.processes import pages
from tests.support.processes.shell import PROGRAM, Shell
from tests.support.processes.windlass import Windlass, make_single, running

PAGE = "how-to/give-a-team-a-quota.md"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Windlass]:
    settings = {"agent": {"enabled": False}}
    # An agent of ours comes by the socket of the one process.
    single = make_single(tmp_path_factory.mktemp("page") / "data", settings)
    with running(single, divisible=False) as server:
        yield server


def test_the_page_on_quota_is_true(server: Windlass, tmp_path: Path) -> None:
    shell = Shell(server, tmp_path)
    environment = shell.environment | shell.owner
    environment["PATH"] = f"{Path(PROGRAM[0]).parent}:{environment['PATH']}"
    key = shell.data("clusters", "register", "east", "-q")
    shown = pages.run(pages.script(PAGE, until="Take it away"), environment, tmp_path)
    assert "team-b" in shown
    rows = {(row["QUEUE"], row["RESOURCE"]): row for row in
            table(shell.data("quota", "show", "east"))}  # fmt: skip
    assert (rows["team-a", GPU]["NOMINAL"], rows["team-a", GPU]["WEIGHT"]) == ("8", "2")
    assert rows["team-b", "memory"]["NOMINAL"] == "512Gi"
    (printed,) = pages.blocks(PAGE, "yaml")
    (tmp_path / "printed.yaml").write_text(printed)
    shell.data("quota", "apply", "east", "-f", "printed.yaml")
    spec = observed(server, key)
    (flavor,) = spec.quota.flavors
    assert dict(flavor.node_labels) == {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
    first, second = spec.quota.cluster_queues
    amounts = {quota.resource: quota for quota in first.quotas}
    assert (amounts[GPU].nominal, amounts[GPU].borrowing_limit) == (8, 4)
    assert (amounts["cpu"].nominal, amounts["memory"].nominal) == (96_000, 2**40)
    assert second.quotas[0].lending_limit == 2
    (assignment,) = spec.assignments
    assert (assignment.cluster_queue, assignment.local_queue) == ("team-a", "team-a")
    rest = pages.script(PAGE, after="Take it away")
    pages.run(f"project={assignment.project_id}\n{rest}", environment, tmp_path)
    shown = shell.data("quota", "show", "east", "-o", "name")
    assert {name.split("/")[1] for name in shown.splitlines()} == {"team-b"}
