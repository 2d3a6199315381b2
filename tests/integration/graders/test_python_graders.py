"""python graders with openai-python, through the front door, in real sandboxes."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openai
import pytest
from tests.integration.graders.test_graders import graders, says
from tests.support.environments.sandbox import needed_sandbox
from tests.support.services.front import Front, running_engine, running_front
from tests.unit.graders.test_definitions import CHECK, PYTHON, SCORE

OVERLAP = """
def grade(sample, item):
    wanted = set(item["words"])
    return len(wanted & set(sample["output_text"].split())) / len(wanted)
"""
CODE = {**PYTHON, "source": OVERLAP, "image_tag": "2025-05-08"}
ITEM = {"words": ["red", "cat"], "answer": "a red dog"}


@pytest.fixture
async def front(database_url: str, tmp_path: Path) -> AsyncIterator[Front]:
    needed_sandbox()
    async with running_front(database_url, tmp_path / "data") as front:
        yield front


async def test_a_script_grades(front: Front) -> None:
    answer = await graders(front).with_raw_response.validate(grader=CODE)
    assert answer.http_response.json() == {"grader": CODE}
    found = await graders(front).run(grader=CODE, model_sample="a red dog", item=ITEM)
    assert (found.reward, found.metadata.scores) == (0.5, {"code": 0.5})
    assert (found.metadata.name, found.metadata.type) == ("code", "python")
    assert not any(value for value in found.metadata.errors.to_dict().values())


async def test_scripts_texts_and_models_grade_together(front: Front) -> None:
    grader: Any = {
        "type": "multi",
        "name": "all",
        "graders": {"code": CODE, "exact": CHECK, "judge": SCORE},
        "calculate_output": "code + 2 * exact + 4 * judge",
    }
    async with running_engine() as engine:
        engine.handler = says("0.25")
        front.board.pin("toy", engine.address)
        found = await graders(front).run(grader=grader, model_sample="a red dog", item=ITEM)
    assert found.sub_rewards == {"code": 0.5, "exact": 1, "judge": 0.25}
    assert found.reward == 3.5


async def test_what_a_script_does_wrong_is_told(front: Front) -> None:
    client = graders(front)
    for body, details in (
        ("return item['color']", "KeyError: 'color' (line 2)"),
        ("return 'good'", "TypeError: grade returned str, not a number"),
        ("raise ValueError('no such word')", "ValueError: no such word (line 2)"),
    ):
        code = {**CODE, "source": f"def grade(sample, item):\n    {body}\n"}
        found = await client.run(grader=code, model_sample="x", item={})
        errors = found.metadata.errors
        assert (found.reward, found.metadata.scores) == (0, {}), body
        assert errors.python_grader_runtime_error is True, body
        assert errors.python_grader_runtime_error_details == details
        assert errors.python_grader_server_error is False, body
        assert errors.windlass == {"python_grader_runtime_error": details}


async def test_a_script_that_ends_its_process_is_told(front: Front) -> None:
    code = {**CODE, "source": "import os\ndef grade(sample, item): os._exit(0)\n"}
    found = await graders(front).run(grader=code, model_sample="x")
    errors = found.metadata.errors
    assert found.reward == 0
    assert errors.python_grader_runtime_error is False
    assert errors.python_grader_server_error is True
    assert errors.python_grader_server_error_type == "exit"


async def test_each_call_has_a_sandbox_of_its_own(front: Front) -> None:
    source = """
import pathlib
def grade(sample, item):
    file = pathlib.Path("/tmp/others")
    seen = file.exists()
    file.write_text("secret")
    return float(seen)
"""
    runs = [
        graders(front).run(grader={**CODE, "source": source}, model_sample="x") for _ in range(3)
    ]
    assert [found.reward for found in await asyncio.gather(*runs)] == [0, 0, 0]


async def test_switched_off_scripts_are_refused_everywhere(
    database_url: str, tmp_path: Path
) -> None:
    async with running_front(database_url, tmp_path / "data", graders={"python": False}) as front:
        client = graders(front)
        multi = {
            "type": "multi", "name": "m", "graders": {"code": CODE}, "calculate_output": "code"
        }  # fmt: skip
        for grader, field in ((CODE, "type"), (multi, "graders.code.type")):
            for call, fields in ((client.validate, {}), (client.run, {"model_sample": "x"})):
                with pytest.raises(openai.BadRequestError, match="disabled") as raised:
                    await call(**fields, grader=grader)
                assert raised.value.param == f"grader.{field}"
            method: Any = {"type": "reinforcement", "reinforcement": {"grader": grader}}
            with pytest.raises(openai.BadRequestError, match="disabled") as raised:
                await front.openai().fine_tuning.jobs.create(
                    model="any", training_file="file-any", method=method
                )
            assert raised.value.param == f"method.reinforcement.grader.{field}"


async def test_without_bubblewrap_the_refusal_says_so(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    async with running_front(database_url, tmp_path / "data") as front:
        with pytest.raises(openai.BadRequestError, match="is not installed") as raised:
            await graders(front).run(grader=CODE, model_sample="x")
        assert raised.value.param == "grader.type"
        found = await graders(front).run(grader=CHECK, model_sample="x", item={"answer": "x"})
        assert found.reward == 1
