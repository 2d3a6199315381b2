"""Loops of the tinker SDK on whole installations: a process per target, and two servers."""

from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.conftest import BASE
from tests.support.environments import postgres
from tests.support.processes import shapes
from tests.support.processes.shell import Shell
from tests.support.processes.windlass import NO_SPARE, Windlass

from windlass.client import Windlass as Client

pytestmark = pytest.mark.torch
tinker: Any = import_module("tinker")
types: Any = tinker.types
PROMPT = "the quick"
STEPS, FIRST_KILLED_AT, SECOND_KILLED_AT = 6, 2, 4


TWO_SERVERS = pytest.param(shapes.REPLICAS, marks=pytest.mark.long)
EACH = [shapes.CHOSEN] if shapes.CHOSEN else [shapes.SPLIT, TWO_SERVERS]


@pytest.fixture(scope="module")
def served(
    request: pytest.FixtureRequest, postgres_url: str, base_folder: Path
) -> Iterator[Windlass]:
    """An installation that trains adapters of the base model, by loops and for chats."""
    tuning = {"trainer": "lora", "model_folders": {BASE: str(base_folder)}}
    with (
        postgres.reachable_folder() as folder,
        postgres.fresh_database(postgres_url) as url,
        shapes.installation(
            request.param, folder / "data", url, {**NO_SPARE, "tuning": tuning}
        ) as made,
    ):
        with Client(made.url, made.owner_key) as client:
            client.models.import_folder(BASE, base_folder, for_everyone=True)
        yield made


def looped(
    served: Windlass, tokens: list[int], meanwhile: Callable[[int], None] = lambda _: None
) -> tuple[list[float], str, list[int]]:
    """Losses of a loop, the path of what it saved for samplers, and what that says greedily."""
    service = tinker.ServiceClient(base_url=served.url, api_key=f"tml-{served.owner_key}")
    training = service.create_lora_training_client(
        base_model=BASE, rank=4, seed=1, user_metadata={"windlass.exclusive": "true"}
    ).result()
    datum = types.Datum(
        model_input=types.ModelInput.from_ints(tokens[:-1]),
        loss_fn_inputs={"target_tokens": tokens[1:], "weights": [1.0] * (len(tokens) - 1)},
    )
    losses = []
    for step in range(STEPS):
        computed = training.forward_backward([datum], "cross_entropy")
        stepped = training.optim_step(types.AdamParams(learning_rate=1e-2))
        meanwhile(step)
        losses.append(computed.result().metrics["loss:sum"])
        assert stepped.result().metrics["step:max"] == step + 1
    path = training.save_weights_for_sampler("best").result().path
    sampler = service.create_sampling_client(model_path=path)
    sampler = sampler.result() if hasattr(sampler, "result") else sampler
    answer = sampler.sample(
        prompt=types.ModelInput.from_ints(tokens),
        num_samples=1,
        sampling_params=types.SamplingParams(max_tokens=8, temperature=0.0),
    )
    sampled = list(answer.result().sequences[0].tokens)
    service.close("success").result()
    return losses, path, sampled


@pytest.mark.parametrize("served", EACH, indirect=True)
def test_a_loop_learns_and_its_checkpoint_chats(
    served: Windlass, base_folder: Path, tmp_path: Path
) -> None:
    tokenizer = import_module("transformers").AutoTokenizer.from_pretrained(base_folder)
    losses, path, sampled = looped(served, tokenizer(PROMPT).input_ids)
    assert losses[-1] < losses[0]
    said = served.openai().completions.create(
        model=path, prompt=PROMPT, max_tokens=8, temperature=0
    )
    assert said.choices[0].text == tokenizer.decode(sampled)
    run = path.removeprefix("tinker://").partition("/")[0]
    listed = Shell(served, tmp_path).run("tuning", "runs", "list").stdout
    assert run in listed


@pytest.mark.parametrize("served", [TWO_SERVERS], indirect=True)
def test_another_server_goes_on_to_the_bit(served: Windlass, base_folder: Path) -> None:
    tokenizer = import_module("transformers").AutoTokenizer.from_pretrained(base_folder)
    tokens = tokenizer(PROMPT).input_ids
    expected, _path, greedy = looped(served, tokens)

    one, two = served.replicas

    def kill(step: int) -> None:
        # The run is on one of them: if not killed with the first, it is with the second.
        if step == FIRST_KILLED_AT:
            one.kill()
            one.start()
            one.wait_ready()
        elif step == SECOND_KILLED_AT:
            two.kill()

    found, _path, said = looped(served, tokens, kill)
    assert (found, said) == (expected, greedy)
