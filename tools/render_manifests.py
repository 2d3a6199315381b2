"""Render the charts into `deploy/manifests`, for those without Helm.

The agent's becomes one file, the runtimes one file each, in folders that kustomize takes.
Needs the `helm` that `make cluster` builds.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import yaml  # noqa: E402
from tests.cluster.objects import chart, runtimes  # noqa: E402

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
    """Writes both."""
    values = yaml.safe_load((MANIFESTS / "values.yaml").read_text())
    text = chart.helm("template", NAME, str(chart.CHART), "--namespace", NAME, values=values)
    (MANIFESTS / f"{NAME}.yaml").write_text(yaml.safe_dump(NAMESPACE, sort_keys=False) + text)
    for path, content in runtimes.manifests().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(yaml.safe_dump(content, sort_keys=False, width=100))


if __name__ == "__main__":
    main()
