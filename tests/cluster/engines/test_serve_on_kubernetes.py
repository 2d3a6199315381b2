"""The page on serving on Kubernetes, as printed, through the whole platform and the chart."""

import contextlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cluster.fixtures import Clusters
from tests.cluster.kubectl import Kubectl, KubectlError
from tests.cluster.stages.engines import from_outside
from tests.cluster.stages.journey import QUOTA_BYTES, Journey, platform
from tests.support.environments import made_once
from tests.support.environments.postgres import reachable_folder, remove_database
from tests.support.processes import pages
from tests.support.processes.shell import PROGRAM, Shell
from tests.support.processes.windlass import running
from tests.support.waiting import wait_until

from windlass.client import Windlass as Client
from windlass_agent.executors.kubernetes.engine_settings import EngineSettings

pytestmark = [pytest.mark.torch, pytest.mark.timeout(1500)]
PAGE = "how-to/serve-on-kubernetes.md"
BASE = "my-base"
SECONDS = 420


@pytest.fixture
def journey(clusters: Clusters) -> Iterator[Journey]:
    with contextlib.ExitStack() as stack:
        east = stack.enter_context(clusters.open("east"))
        folder = stack.enter_context(reachable_folder())
        windlass, address = stack.enter_context(platform(folder, {"east": east}))
        on_clusters_alone(windlass.configs["all"])
        stack.callback(remove_database, windlass.data)
        stack.enter_context(running(windlass))
        made = Journey(windlass, stack.enter_context(windlass.http()), {"east": east}, address)
        made.join("east", folder / "east", stack, serves=True)
        made.share_out("east", memory=QUOTA_BYTES)
        with Client(windlass.url, windlass.owner_key) as client:
            client.models.import_folder(BASE, made_once.tiny_model(), for_everyone=True)
        made.team("readers", "east")
        yield made


def test_the_settings_that_the_page_prints_are_valid() -> None:
    images, completed, weights = (
        EngineSettings.model_validate(yaml.safe_load(printed)["engines"])
        for printed in pages.blocks(PAGE, "yaml")
    )
    assert set(images.images) == {"vllm"}
    assert set(completed.images) == {"llamacpp", "sglang"}
    assert weights.weights.claim


def test_the_page_is_true(journey: Journey, tmp_path: Path) -> None:
    east, team = journey.clusters["east"], journey.projects["readers"]
    space = f"{team.namespace}-all"
    east.remove_after("namespace", space)
    shell = Shell(journey.windlass, tmp_path)
    environment = shell.environment | shell.owner | {"QUEUE": journey.queue, "NAMESPACE": space}
    environment["PATH"] = f"{Path(PROGRAM[0]).parent}:{environment['PATH']}"
    assigned = pages.script(PAGE, after="Let a project's models run there", until="Start it")
    pages.run(assigned, environment, tmp_path)
    wait_until(lambda: east.works("get", "resourcequota,networkpolicy", "-n", space), "its place")
    wait_until(partial(ready, journey, "everyone"), "the namespace is set up")
    east.volumes(space)
    trusted = (journey.windlass.ca or Path()).read_text()
    config = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"ca.crt": trusted}}
    east.apply(config | {"metadata": {"name": "platform", "namespace": space}})
    east.apply(from_outside(space, east.host))
    pages.run(pages.script(PAGE, after="Start it", until="Use it"), environment, tmp_path)
    wait_until(lambda: serving(journey)["ready_replicas"] == 1, "one replica answers", SECONDS)
    # There is quota for one.
    wait_until(lambda: "quota" in reason(journey), "the other says that it waits for quota", 60)
    client = journey.windlass.openai(team.key)
    answer = client.chat.completions.create(
        model=BASE, messages=[{"role": "user", "content": "Where is the harbour?"}], max_tokens=4
    )
    assert answer.usage
    assert answer.usage.completion_tokens == 4
    deployments = east.get("deployments", "-n", space)["items"]
    assert len(deployments) == 2
    refuses_members(journey, tmp_path, space)
    journey.json("DELETE", f"/servings/{BASE}", key=journey.windlass.owner_key)


def on_clusters_alone(config: Path) -> None:
    """Leaves the server's own machine out, which would serve as well."""
    document = yaml.safe_load(config.read_text())
    config.write_text(yaml.safe_dump(document | {"agent": {"enabled": False}}))


def ready(journey: Journey, project: str) -> bool:
    path = f"/clusters/{journey.ids['east']}/assignments"
    found = journey.json("GET", path)["data"]
    return any(one["project_id"] == project and one["ready"] for one in found)


def serving(journey: Journey) -> dict[str, Any]:
    found: dict[str, Any]
    found = journey.json("GET", f"/servings/{BASE}", key=journey.windlass.owner_key)
    return found


def reason(journey: Journey) -> str:
    return str(serving(journey))


def refuses_members(journey: Journey, folder: Path, space: str) -> None:
    """The cluster itself lets no member's account enter the pod of an engine."""
    east = journey.clusters["east"]
    pods = east.get("pods", "-n", space, "-l", "windlass.dev/kind=engine")["items"]
    name = next(one["metadata"]["name"] for one in pods if one["spec"].get("nodeName"))
    member = f"system:serviceaccount:{space}:windlass-editor"
    asked = ("exec", "-n", space, name, "-c", "engine", "--as", member, "--", "true")
    with pytest.raises(KubectlError, match="Pods of engines cannot be entered"):
        east.kubectl(*asked)
    assert isinstance(east.kubectl, Kubectl)
