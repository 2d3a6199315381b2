"""Weights in a claim that a namespace's engines share, with the chart's own rights and policies."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from tests.cluster.fixtures import Clusters
from tests.cluster.kubectl import KubectlError
from tests.cluster.objects import chart
from tests.cluster.stages.driven import MIB
from tests.cluster.stages.engines import EngineStage, engine_stage
from tests.support.environments import postgres

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.kubernetes.names import engine_name

pytestmark = [
    pytest.mark.torch,
    pytest.mark.timeout(900),
    pytest.mark.asyncio(loop_scope="module"),
]
CLAIM = "weights"


@dataclass
class Shared:
    """A stage whose namespace has a volume, and an agent that may do what the chart lets it."""

    stage: EngineStage
    rights: chart.Rights
    # The volume, as this machine sees it.
    folder: Path

    def settings(self) -> dict[str, Any]:
        weights = {"claim": CLAIM, "bytes": 256 * MIB, "storage_class": self.rights.name}
        return self.stage.settings(weights=weights) | {"agent_namespace": self.rights.name}

    def prefetch(self, *, generation: int = 1, desired: Any = None) -> pb.Workload:
        made = self.stage.workload("pre-toy", generation=generation)
        prefetch = pb.PrefetchWorkload(
            model="toy", model_version_id="mv-toy", files=made.engine.model_files
        )
        made.kind = pb.WORKLOAD_KIND_FILES
        made.prefetch.CopyFrom(prefetch)
        made.desired = desired or made.desired
        return made

    async def put(self, workload: pb.Workload) -> None:
        await self.stage.world.plane.internal.PutWorkload(pb.PutWorkloadRequest(workload=workload))

    def refused(self, item: dict[str, Any]) -> str:
        """What the cluster says to an administrator who creates it."""
        space = self.stage.world.namespace
        with pytest.raises(KubectlError) as said:
            self.stage.world.cluster.kubectl(
                *("create", "-n", space, "--dry-run=server", "-f-"), input=json.dumps(item)
            )
        return str(said.value)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(
    clusters: Clusters,
    postgres_url: str,
    schema_template: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[Shared]:
    folder: Path = tmp_path_factory.mktemp("shared")
    with (
        clusters.open("east") as cluster,
        postgres.fresh_database(postgres_url, template=schema_template) as url,
    ):
        cluster.own()
        values = {"cluster": {"engines": {"weights": {"claim": CLAIM}}}}
        rights = chart.granted(cluster, folder, values)
        async with engine_stage(cluster, url, folder) as stage:
            space = stage.world.namespace
            volume = folder / "volume"
            volume.mkdir()
            volume.chmod(0o777)
            folder.parent.chmod(0o755)
            cluster.remove_after("persistentvolume", rights.name)
            cluster.apply(_volume(rights.name, space, volume), _binding(rights.name, space))
            cluster.kubectl("label", "namespace", space, "windlass.dev/project=proj_1")
            stage.world.cluster = replace(cluster, kubeconfig=rights.kubeconfig)
            yield Shared(stage, rights, volume)


async def test_weights_come_once_and_nobody_else_mounts_them(shared: Shared) -> None:
    stage, world = shared.stage, shared.stage.world
    async with world.agent(**shared.settings()):
        await shared.put(shared.prefetch())
        await world.reach("pre-toy", pb.PHASE_SUCCEEDED)
        await shared.put(shared.prefetch(generation=2, desired=pb.DESIRED_STATE_DELETED))
        await world.reach("pre-toy", pb.PHASE_STOPPED, generation=2)
        capacity = world.executor and world.executor.capacity()
        assert capacity
        assert list(capacity.model_versions) == ["mv-toy"], "though nobody uses it"
        found = shared.folder / "mv-toy"
        before = {path.name: path.stat().st_mtime_ns for path in found.iterdir()}
        assert "config.json" in before
        engine = stage.workload("eng-one", "mv-a")
        for file in engine.engine.model_files:
            # What is there is not downloaded.
            file.url += "-none"
        await shared.put(engine)
        await stage.serves("eng-one", "mv-a")
        assert (await stage.say("eng-one", "toy")).json()["usage"]["completion_tokens"] == 8
        assert {path.name: path.stat().st_mtime_ns for path in found.iterdir()} == before
        written = ("exec", f"deployment/{engine_name('eng-one')}", "-n", world.namespace,
                   "-c", "engine", "--", "touch", "/store/mv-toy/x")  # fmt: skip
        with pytest.raises(KubectlError, match="Read-only file system"):
            world.cluster.kubectl(*written)
        pod = _pod(world.cluster.image)
        for item in (
            {"apiVersion": "v1", "kind": "Pod", **pod},
            _of("Deployment", pod),
            _of("ReplicaSet", pod),
        ):
            assert "which their own pods alone mount" in shared.refused(item), item["kind"]
        (running,) = await stage.pods()
        name = running["metadata"]["name"]
        image = ("set", "image", f"pod/{name}", "engine=other:1", "-n", world.namespace)
        with pytest.raises(KubectlError, match="is changed by Windlass alone"):
            world.cluster.kubectl(*image)
        debug = ("debug", name, "-n", world.namespace, "--image", world.cluster.image,
                 "--profile=restricted")  # fmt: skip
        with pytest.raises(KubectlError, match="is changed by Windlass alone"):
            world.cluster.kubectl(*debug)
        assert "is not copied" in shared.refused(_copy())
        await shared.put(stage.workload("eng-one", generation=2, desired=pb.DESIRED_STATE_DELETED))
        await stage.gone()


def _volume(name: str, space: str, folder: Path) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteMany"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": name,
            "claimRef": {"namespace": space, "name": CLAIM},
            "hostPath": {"path": str(folder), "type": "Directory"},
        },
    }


def _binding(agent: str, space: str) -> dict[str, Any]:
    """What the agent may do in a namespace of a project."""
    group = "rbac.authorization.k8s.io"
    return {
        "apiVersion": f"{group}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "windlass-agent", "namespace": space},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": f"{agent}-space"},
        "subjects": [{"kind": "ServiceAccount", "name": agent, "namespace": agent}],
    }


def _pod(image: str) -> dict[str, Any]:
    """A pod that mounts the claim, and is otherwise as the namespace wants pods."""
    container = {
        "name": "curious",
        "image": image,
        "command": ["true"],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    security = {
        "runAsNonRoot": True,
        "runAsUser": 1000,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    spec = {
        "containers": [container],
        "securityContext": security | {"seccompProfile": {"type": "RuntimeDefault"}},
        "volumes": [{"name": "w", "persistentVolumeClaim": {"claimName": CLAIM}}],
    }
    return {"metadata": {"name": "curious", "labels": {"app": "curious"}}, "spec": spec}


def _of(kind: str, pod: dict[str, Any]) -> dict[str, Any]:
    template = {"metadata": {"labels": pod["metadata"]["labels"]}, "spec": pod["spec"]}
    selector = {"matchLabels": pod["metadata"]["labels"]}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": "curious"},
        "spec": {"selector": selector, "template": template},
    }


def _copy() -> dict[str, Any]:
    source = {"kind": "PersistentVolumeClaim", "name": CLAIM}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "copy"},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "resources": {"requests": {"storage": "1Gi"}},
            "dataSource": source,
        },
    }
