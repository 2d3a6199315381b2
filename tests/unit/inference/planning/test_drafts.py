"""Engines whose tokens another model guesses: what a change of it does, and its end."""

from dataclasses import replace
from typing import Any, cast

import pytest
from tests.unit.inference.test_engine_settings import NAMES, NOW, RUNS, view

from windlass.api.models.v1 import models_pb2
from windlass.core.errors import InvalidArgument
from windlass.engine_arguments import EngineArguments
from windlass.inference.domain import (
    DELETED,
    Engine,
    InferencePolicy,
    Name,
    Rows,
    Serving,
    View,
)
from windlass.inference.planning import EngineChanges, Planner
from windlass.inference.servings.drafts import Drafts

SMALL = Name("small", "", "", "mv-small", "mv-small")
GUESSED = EngineArguments(draft_model="small")
SERVING = Serving(
    "proj-a", "tiny", "org-a", "tiny", "tiny", 1, NOW - 60, engine="vllm", arguments=GUESSED,
    draft_version_id="mv-small",
)  # fmt: skip
SERVED = replace(
    RUNS, cluster_id="big", engine="vllm", arguments=GUESSED, draft_version_id="mv-small"
)


def seen(*answering: Engine, has_draft: bool = True) -> View:
    older = replace(SMALL, version_id="mv-older")
    names = {**NAMES, "mv-small": SMALL, "mv-older": older} if has_draft else NAMES
    return replace(view({"big": ("vllm",)}, answering), names=names)


def planned(serving: Serving, *running: Engine, has_draft: bool = True) -> EngineChanges:
    policy = InferencePolicy("builtin", 8, 4, 600, 1800)
    rows = Rows(NOW, running, [], [serving])
    return Planner(rows, seen(*running, has_draft=has_draft), policy, lambda: "eng-new").plan()


def test_an_engine_has_the_draft_of_its_serving() -> None:
    (made,) = planned(SERVING).creates
    assert made.draft_version_id == "mv-small"
    assert not planned(SERVING, SERVED).updates
    assert Rows(NOW, [SERVED], [], [SERVING]).draft_ids == {"mv-small"}


def test_another_version_of_the_draft_starts_another_engine() -> None:
    (made,) = planned(SERVING, replace(SERVED, draft_version_id="mv-older")).creates
    assert (made.draft_version_id, made.replica) == ("mv-small", 1)


def test_without_its_draft_no_engine_starts_and_the_serving_says_why() -> None:
    plan = planned(SERVING, has_draft=False)
    assert not plan.creates
    ((_, error),) = plan.errors
    assert error == "The draft model of its serving was deleted; set another, or none."
    # As where its model is gone: it could not start again, nor get an adapter.
    plan = planned(SERVING, SERVED, has_draft=False)
    assert [new.desired for _, new in plan.updates] == [DELETED]
    # Set to none, it is served as before.
    (made,) = planned(replace(SERVING, draft_version_id=""), has_draft=False).creates
    assert not made.draft_version_id


@pytest.mark.parametrize("task", ["MODEL_TASK_EMBEDDING", "MODEL_TASK_SCORING"])
async def test_a_model_that_generates_nothing_has_no_draft(task: str) -> None:
    """An embedder's or reranker's vocabulary may be that of the draft."""
    known = models_pb2.Model(id="ranker", version_id="mv-ranker", task=cast(Any, task))
    model, nobody = models_pb2.ResolvedModel(model=known), cast(Any, None)
    with pytest.raises(InvalidArgument, match="ranker generates no text") as caught:
        await Drafts(nobody, nobody).version_of(model, GUESSED, "vllm")
    assert caught.value.param == "arguments.draft_model"
