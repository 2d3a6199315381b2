"""Pods of tests, as Pod Security `restricted` wants them."""

from typing import Any

USER = 65532


def spec(image: str, command: list[str], **container: Any) -> dict[str, Any]:
    """The spec of a pod with one container, `main`, that runs to its end."""
    return {
        "restartPolicy": "Never",
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [
            {
                "name": "main",
                "image": image,
                "command": command,
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "capabilities": {"drop": ["ALL"]},
                },
                **container,
            }
        ],
    }


def pod(namespace: str, name: str, made: dict[str, Any]) -> dict[str, Any]:
    """A Pod of a spec."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": made,
    }


def job(namespace: str, name: str, made: dict[str, Any], *, queue: str = "") -> dict[str, Any]:
    """A Job of one pod, which waits in a LocalQueue if one is given."""
    labels = {"kueue.x-k8s.io/queue-name": queue} if queue else {}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {"suspend": bool(queue), "backoffLimit": 0, "template": {"spec": made}},
    }
