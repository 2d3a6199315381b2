"""Sessions sample on the engine that the operator names, as they would in the trainer."""

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from tests.support.factories.toy_model import make_model
from tests.support.processes.engine import RunningEngine, running_engine
from tests.support.processes.windlass import make_single, running

tinker: Any = import_module("tinker")
types: Any = tinker.types
pytestmark = pytest.mark.torch
PROMPT = [20, 31, 42, 53, 64]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("base") / "model")


@pytest.fixture(scope="module")
def engine(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningEngine]:
    socket = tmp_path_factory.mktemp("e") / "s"
    with running_engine(folder, endpoint=f"unix://{socket}") as made:
        yield made


def sampled(
    tmp_path: Path, folder: Path, settings: dict[str, Any]
) -> tuple[list[Any], list[Any], list[Any]]:
    """What a pinned sampler and the base say; the first again after more training; and the next."""
    tuning = {"trainer": "lora", "model_folders": {"toy": str(folder)}, **settings}
    with running(make_single(tmp_path / "data", {"tuning": tuning})) as server:
        service = tinker.ServiceClient(base_url=server.url, api_key=f"tml-{server.owner_key}")
        training = service.create_lora_training_client(base_model="toy", rank=8, seed=1).result()

        def learn(token: int) -> Any:
            taught = [*PROMPT, *[token] * 8]
            datum = types.Datum(
                model_input=types.ModelInput.from_ints(taught[:-1]),
                loss_fn_inputs={"target_tokens": taught[1:], "weights": [1.0] * (len(taught) - 1)},
            )
            for _ in range(6):
                training.forward_backward([datum], "cross_entropy")
                training.optim_step(types.AdamParams(learning_rate=3e-2)).result()
            return training.save_weights_and_get_sampling_client().result()

        def say(client: Any) -> Any:
            answer = client.sample(
                prompt=types.ModelInput.from_ints(PROMPT),
                num_samples=2,
                sampling_params=types.SamplingParams(max_tokens=6, temperature=0.0),
                include_prompt_logprobs=True,
            ).result()
            scores = [one.logprobs for one in answer.sequences]
            return [list(one.tokens) for one in answer.sequences], scores, answer.prompt_logprobs

        first = learn(PROMPT[0])
        base = service.create_sampling_client(base_model="toy")
        before = [say(first), say(base)]
        second = learn(PROMPT[1])
        found = before, [say(first), say(base)], [say(second)]
        service.close("success").result()
        return found


def test_samples_on_the_engine_are_those_of_the_trainer(
    tmp_path: Path, folder: Path, engine: RunningEngine
) -> None:
    generated = engine.metric("generated_tokens_total")
    there, again, later = sampled(
        tmp_path / "there", folder, {"samplers": {"toy": engine.endpoint}, "sampler_adapters": 2}
    )
    # Without chance both continuations are one.
    assert engine.metric("generated_tokens_total") >= generated + 5 * 6
    here = sampled(tmp_path / "here", folder, {})
    assert len({repr(one[0]) for one in (there[0], there[1], later[0])}) == 3
    for one, other in zip([*there, *again, *later], [*here[0], *here[1], *here[2]], strict=True):
        assert one[0] == other[0]
        for told, own in zip([*one[1], one[2][1:]], [*other[1], other[2][1:]], strict=True):
            assert told == pytest.approx(own, abs=1e-4)
    assert [one[0] for one in again] == [one[0] for one in there], "pinned ones stay still"
