"""The schemas of Kueue's objects as the pinned Kueue's CRDs have them.

`python -m tests.support.factories.kueue_crds` writes the excerpt anew, from the Go module that
tests/cluster pins.
"""

import json
import subprocess
from pathlib import Path
from typing import Any

import yaml

TESTS = Path(__file__).parents[2]
EXCERPT = TESTS / "contract/excerpts/kueue_crds.json"
PROGRAM = TESTS / "cluster/provision/programs/kueue"
MODULE = "sigs.k8s.io/kueue"
VERSION = "v1beta2"
KINDS = {
    "ClusterQueue": "clusterqueues",
    "Cohort": "cohorts",
    "LocalQueue": "localqueues",
    "ResourceFlavor": "resourceflavors",
    "Workload": "workloads",
    "WorkloadPriorityClass": "workloadpriorityclasses",
}
# Pod templates, patches of them and topologies fill 14,000 lines, and nobody here looks into them.
_LEFT_OUT = frozenset({"template", "topologyAssignment", "topologyRequest", "runtimePatches"})
_KEPT = frozenset(
    {
        "additionalProperties",
        "anyOf",
        "enum",
        "format",
        "items",
        "maxItems",
        "maxLength",
        "minItems",
        "minimum",
        "pattern",
        "required",
        "type",
        "x-kubernetes-int-or-string",
    }
)
Schema = dict[str, Any]


def excerpt() -> dict[str, Schema]:
    """Returns the checked-in schemas by kind."""
    found: dict[str, Schema] = json.loads(EXCERPT.read_text())
    return found


def pinned() -> dict[str, Schema] | None:
    """Returns the same from the module cache; None if the module is not there."""
    folder = module(MODULE, PROGRAM)
    if folder is None:
        return None
    crds = folder / "config/components/crd/bases"
    return {
        kind: schema(crds / f"kueue.x-k8s.io_{plural}.yaml", VERSION)
        for kind, plural in KINDS.items()
    }


def module(name: str, program: Path) -> Path | None:
    """Returns the source of a Go module at the version that a program pins; None if missing."""
    command = ["go", "list", "-mod=readonly", "-m", "-f", "{{.Dir}}", name]
    try:
        done = subprocess.run(
            command, cwd=program, capture_output=True, text=True, check=False, timeout=60
        )
    except FileNotFoundError:
        return None
    folder = Path(done.stdout.strip() or "/nonexistent")
    return folder if folder.is_dir() else None


def schema(path: Path, wanted: str) -> Schema:
    """Returns one version's fields in a CRD's file, without descriptions."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    crd = yaml.load(path.read_text(), Loader=loader)
    (version,) = [one for one in crd["spec"]["versions"] if one["name"] == wanted]
    assert version["served"]
    assert version["storage"]
    return _pruned(version["schema"]["openAPIV3Schema"])


def _pruned(schema: Schema) -> Schema:
    kept: Schema = {}
    for name, value in sorted(schema.items()):
        if name == "properties":
            kept[name] = {
                field: {} if field in _LEFT_OUT else _pruned(part)
                for field, part in sorted(value.items())
            }
        elif name in _KEPT:
            kept[name] = _pruned(value) if isinstance(value, dict) else value
    return kept


def main() -> None:
    """Writes the excerpt."""
    schemas = pinned()
    assert schemas is not None, f"{MODULE} is not in the module cache: make cluster"
    EXCERPT.write_text(json.dumps(schemas, indent=1) + "\n")


if __name__ == "__main__":
    main()
