"""The how-to on continued training, run as it is printed: SFT, then DPO, then GRPO."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from tests.integration.how_to.test_training_methods import HI, write_files
from tests.support.processes import pages
from tests.support.processes.windlass import NO_SPARE, Windlass, make_single, running
from tests.support.waiting import wait_until

from windlass.client import Windlass as Client

pytestmark = pytest.mark.torch
PAGE = "how-to/continue-training.md"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Iterator[Windlass]:
    with running(make_single(tmp_path_factory.mktemp("continued") / "data", NO_SPARE)) as made:
        with Client(made.url, made.owner_key) as client:
            client.models.import_folder("my-base", tiny_model)
        yield made


def test_the_page_on_continued_training_is_true(
    server: Windlass, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    client = server.openai()
    scope: dict[str, Any] = {"client": client, "time": time}
    chain, lineage, grown, removal = pages.blocks(PAGE, "python")
    for block in (chain, lineage, grown):
        exec(block, scope)
    names = [scope[name] for name in ("taught", "preferring", "rewarded")]
    models = [client.models.retrieve(name).windlass for name in names]
    assert [each["kind"] for each in models] == ["adapter"] * 3
    assert [each["base_model"] for each in models] == ["my-base"] * 3
    assert [each["parent"] for each in models] == ["my-base", *names[:2]]
    assert all(name.startswith("ft:my-base:") for name in names)

    with pytest.raises(openai.ConflictError) as refused:
        exec(removal, scope)
    assert refused.value.code == "model_in_use"
    larger = scope["larger"].id
    client.fine_tuning.jobs.cancel(larger)
    wait_until(lambda: client.fine_tuning.jobs.retrieve(larger).finished_at)
    exec(removal, scope)
    for name in names[1:]:
        answer = client.chat.completions.create(model=name, messages=HI, max_tokens=8)
        assert answer.model == name
        assert answer.choices[0].message.content
