"""Render the agent's chart into `deploy/manifests/windlass-agent.yaml`, for those without Helm.

Needs the `helm` that `make cluster` builds.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import yaml  # noqa: E402
from tests.cluster.chart import CHART, helm  # noqa: E402

MANIFESTS = ROOT / "deploy" / "manifests"
NAME = "windlass-agent"
NAMESPACE = {
    "apiVersion": "v1",
    "kind": "Namespace",
    "metadata": {
        "name": NAME,
        "labels": {"pod-security.kubernetes.io/enforce": "restricted"},
    },
}


def main() -> None:
    values = yaml.safe_load((MANIFESTS / "values.yaml").read_text())
    text = helm("template", NAME, str(CHART), "--namespace", NAME, values=values)
    (MANIFESTS / f"{NAME}.yaml").write_text(yaml.safe_dump(NAMESPACE, sort_keys=False) + text)


if __name__ == "__main__":
    main()
