"""The schema of a TrainJob's spec as the pinned Kubeflow Trainer's CRD has it.

`python -m tests.support.factories.trainer_crd` writes the excerpt anew, from the Go module that
tests/cluster pins.
"""

import json
from typing import Any

from tests.support.factories import kueue_crds

EXCERPT = kueue_crds.TESTS / "contract/excerpts/trainjob_crd.json"
PROGRAM = kueue_crds.TESTS / "cluster/provision/programs/trainer"
MODULE = "github.com/kubeflow/trainer/v2"
VERSION = "v1alpha1"


def excerpt() -> dict[str, Any]:
    """Returns the checked-in schema."""
    found: dict[str, Any] = json.loads(EXCERPT.read_text())
    return found


def pinned() -> dict[str, Any] | None:
    """Returns the same from the module cache; None if the module is not there."""
    folder = kueue_crds.module(MODULE, PROGRAM)
    if folder is None:
        return None
    crd = folder / "manifests/base/crds/trainer.kubeflow.org_trainjobs.yaml"
    spec: dict[str, Any] = kueue_crds.schema(crd, VERSION)["properties"]["spec"]
    return spec


def main() -> None:
    """Writes the excerpt."""
    schema = pinned()
    assert schema is not None, f"{MODULE} is not in the module cache: make cluster"
    EXCERPT.write_text(json.dumps(schema, indent=1) + "\n")


if __name__ == "__main__":
    main()
