"""Kubeflow's `BuiltinTrainer`: a configuration of any backend as a TrainJob."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from windlass.backends.backend import InvalidConfig, LLMBackend, RenderContext
from windlass.backends.initializers import Initializer
from windlass.kubernetes.names import is_dns_label
from windlass.kubernetes.resources import NVIDIA_GPU

_API = "trainer.kubeflow.org"
_RESOURCES = {
    "cpu": "cpu",
    "memory": "memory",
    "gpu": NVIDIA_GPU,
    "storage": "ephemeral-storage",
    "ephemeral-storage": "ephemeral-storage",
}


@dataclass
class BuiltinTrainer:
    """A trainer that is there already and only told what to do, whichever backend it is of."""

    config: LLMBackend

    def to_train_job(
        self,
        name: str,
        *,
        runtime: str,
        namespace: str | None = None,
        runtime_kind: Literal["ClusterTrainingRuntime", "TrainingRuntime"] = (
            "ClusterTrainingRuntime"
        ),
        initializer: Initializer | None = None,
        image: str | None = None,
        env: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        device: Literal["cpu", "cuda"] = "cuda",
    ) -> dict[str, Any]:
        """Returns the TrainJob and sends nothing; raises InvalidConfig.

        `runtime` names the runtime, whose image is used unless `image` is given; `device` says
        what its nodes compute on. Source: Kubeflow Trainer v2.3, `v1alpha1`.
        """
        if not (is_dns_label(name) and name[0].isalpha()):
            raise InvalidConfig(
                "name", f"'{name}' is not a DNS label (RFC 1035) of up to 63 characters"
            )
        trainer = self._trainer(initializer, device)
        if image:
            trainer["image"] = image
        if env:
            trainer["env"] = [{"name": key, "value": value} for key, value in env.items()]
        place = {"namespace": namespace} if namespace else {}
        marks = {"labels": dict(labels)} if labels else {}
        parts = initializer.to_object() if initializer else {}
        return {
            "apiVersion": f"{_API}/v1alpha1",
            "kind": "TrainJob",
            "metadata": {"name": name, **place, **marks},
            "spec": {
                "runtimeRef": {"apiGroup": _API, "kind": runtime_kind, "name": runtime},
                **({"initializer": parts} if parts else {}),
                "trainer": trainer,
            },
        }

    def _trainer(
        self, initializer: Initializer | None, device: Literal["cpu", "cuda"]
    ) -> dict[str, Any]:
        config = self.config
        config.validate()
        nodes = config.num_nodes or 1
        context = RenderContext.of_pod(initializer=initializer, nodes=nodes, device=device)
        trainer: dict[str, Any] = {
            "command": list(config.to_command(context)),
            "args": config.to_args(context),
        }
        if config.num_nodes:
            trainer["numNodes"] = config.num_nodes
        if config.resources_per_node:
            amounts = node_resources(config.resources_per_node)
            trainer["resourcesPerNode"] = {"requests": amounts, "limits": dict(amounts)}
        return trainer


def node_resources(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Returns amounts by Kubernetes' names; `gpu`, `storage` and `mig-PROFILE` are short ones."""
    found: dict[str, Any] = {}
    for name, amount in asked.items():
        if name.lower().startswith("mig-"):
            found[f"nvidia.com/{name.lower()}"] = amount
        else:
            # Names of extended resources keep their case.
            found[_RESOURCES.get(name.lower(), name)] = amount
    slices = [name for name in found if name.startswith("nvidia.com/mig-")]
    if len(slices) > 1 or (slices and NVIDIA_GPU in found):
        raise InvalidConfig(
            "resources_per_node",
            f"{', '.join(slices)}: a node may have GPUs of only one kind",
        )
    return found
