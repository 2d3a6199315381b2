"""The choice of TorchTune's recipes against Kubeflow Trainer's own, case by case.

`trainer_torchtune_recipes.json` is what v2.3.0's `getRecipeAndConfig` and `validateTorchTune`
returned, the latter told how many processes the former counts.
"""

import json
from pathlib import Path
from typing import Any

from windlass.backends.torchtune.recipes import TrainingResources, choose_recipe, model_of, refusals

GOLDEN: dict[str, Any] = json.loads(
    (Path(__file__).parent / "excerpts/trainer_torchtune_recipes.json").read_text()
)
FIELDS = {
    "spec.runtimeRef.name": "model",
    "spec.trainer.numNodes": "nodes",
    "spec.trainer.numProcPerNode": "processes",
    # Trainer names both; one reason is enough.
    "spec.trainer.resourcesPerNode": "processes",
}


def test_every_case_is_as_trainer_has_it() -> None:
    assert len(GOLDEN["cases"]) > 500
    for case in GOLDEN["cases"]:
        runtime, overrides, nodes, processes, gpus, cpus, recipe, config, refused = case
        args = GOLDEN["overrides"][overrides]
        place = TrainingResources(nodes=nodes, processes=processes, gpus=gpus, cpus=cpus)
        model = model_of(runtime)
        found = choose_recipe(model, args, place)
        assert [found.name, found.config] == [recipe, config], case
        ours = {(one.subject, one.index) for one in refusals(model, args, place)}
        theirs = {
            (FIELDS[field], 0) if field in FIELDS else ("overrides", int(field.split("[")[1][:-1]))
            for field in refused
        }
        assert ours == theirs, case
