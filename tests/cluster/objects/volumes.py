"""This machine's Python in pods, without an image: read-only volumes of its folders.

Pod Security `restricted` forbids hostPath in pods, so each folder is a PersistentVolume that one
claim of the namespace has. The folders are where they are here, since a virtual environment and
an editable installation name them.
"""

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cluster.provision.site import REPOSITORY

SYSTEM = ("/usr", "/lib", "/lib64")


@dataclass(frozen=True)
class Python:
    """Volumes for a pod that runs this machine's Python as an ordinary user."""

    persistent_volumes: list[dict[str, Any]]
    claims: list[dict[str, Any]]
    # For the pod's `volumes`, its containers' `volumeMounts` and their `env`.
    volumes: list[dict[str, Any]]
    mounts: list[dict[str, Any]]
    env: list[dict[str, str]]
    # The path of the interpreter.
    program: str = sys.executable

    @classmethod
    def of(cls, namespace: str, folders: list[Path]) -> "Python":
        """The volumes of a namespace."""
        names = {f"python-{number}": str(folder) for number, folder in enumerate(folders)}
        found = {
            "PYTHONPATH": ":".join(str(REPOSITORY / part) for part in ("services", "agent", "")),
            "HOME": "/tmp",
            "USER": "nobody",
        }
        return cls(
            [_volume(namespace, name, folder) for name, folder in names.items()],
            [_claim(namespace, name) for name in names],
            [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in names],
            [
                {"name": name, "mountPath": folder, "readOnly": True}
                for name, folder in names.items()
            ],
            [{"name": name, "value": value} for name, value in found.items()],
        )

    def into(self, pod: dict[str, Any]) -> None:
        """Adds itself to the spec of a pod."""
        pod.setdefault("volumes", []).extend(self.volumes)
        for container in pod["containers"]:
            container.setdefault("volumeMounts", []).extend(self.mounts)
            container.setdefault("env", []).extend(self.env)


def sources() -> list[Path]:
    """The folders that this Python is made of, none of them below another."""
    wanted = [*map(Path, SYSTEM), REPOSITORY, Path(sys.prefix), Path(sys.base_prefix)]
    wanted = [path for path in dict.fromkeys(wanted) if path.is_dir()]
    return [
        path
        for path in wanted
        if not any(path != other and path.is_relative_to(other) for other in wanted)
    ]


def _volume(namespace: str, name: str, folder: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"{namespace}-{name}"},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadOnlyMany"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": "",
            "claimRef": {"namespace": namespace, "name": name},
            "hostPath": {"path": os.path.realpath(folder), "type": "Directory"},
        },
    }


def _claim(namespace: str, name: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "accessModes": ["ReadOnlyMany"],
            "resources": {"requests": {"storage": "1Gi"}},
            "storageClassName": "",
            "volumeName": f"{namespace}-{name}",
        },
    }
