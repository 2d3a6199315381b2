"""A sampler's checkpoint becomes a model of the platform: it chats as the sampler samples."""

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from tests.support.factories.toy_model import make_model
from tests.support.processes.shell import Shell
from tests.support.processes.windlass import Windlass, make_single, running

from windlass.client import Windlass as Client

tinker: Any = import_module("tinker")
types: Any = tinker.types
pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("base") / "model")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, folder: Path) -> Iterator[Windlass]:
    tuning = {"trainer": "lora", "model_folders": {"toy": str(folder)}}
    settings = {"tuning": tuning | {"full_parameter_trainers": 1}}
    with running(make_single(tmp_path_factory.mktemp("server") / "data", settings)) as server:
        with Client(server.url, server.owner_key) as client:
            for name in ("toy", "same"):
                client.models.import_folder(name, folder, for_everyone=True)
        yield server


def trained(
    server: Windlass, prompt: list[int], options: dict[str, str] | None = None
) -> tuple[str, str, list[int]]:
    """The paths of a state and of a sampler of a run, and what that samples after a prompt."""
    service = tinker.ServiceClient(
        base_url=server.url, api_key=f"tml-{server.owner_key}", user_metadata=options
    )
    training = service.create_lora_training_client(base_model="toy", rank=8, seed=1).result()
    taught = [*prompt, *[prompt[0]] * 8]
    datum = types.Datum(
        model_input=types.ModelInput.from_ints(taught[:-1]),
        loss_fn_inputs={"target_tokens": taught[1:], "weights": [1.0] * (len(taught) - 1)},
    )
    for _ in range(8):
        training.forward_backward([datum], "cross_entropy")
        training.optim_step(types.AdamParams(learning_rate=3e-2)).result()
    state = training.save_state("end").result().path
    path = training.save_weights_for_sampler("best").result().path
    answer = (
        service.create_sampling_client(model_path=path)
        .result()
        .sample(
            prompt=types.ModelInput.from_ints(prompt),
            num_samples=1,
            sampling_params=types.SamplingParams(max_tokens=8, temperature=0.0),
        )
    )
    tokens = list(answer.result().sequences[0].tokens)
    service.close("success").result()
    return state, path, tokens


def test_a_checkpoint_is_a_model_that_answers_as_its_sampler(
    server: Windlass, folder: Path, tmp_path: Path
) -> None:
    tokenizer = import_module("transformers").AutoTokenizer.from_pretrained(folder)
    prompt = tokenizer("the quick").input_ids
    state, path, sampled = trained(server, prompt)
    shell = Shell(server, tmp_path)
    register = ("tuning", "checkpoints", "register")
    refused = shell.run(*register, state, "--suffix", "best")
    assert "save_weights_for_sampler" in refused.stderr
    model = shell.object(*register, path, "--suffix", "best")["id"]
    assert model.startswith("ft:toy:")
    # A repeat is the same one.
    assert shell.object(*register, path, "--suffix", "best")["id"] == model
    # It outlives what it was copied from.
    shell.run("tuning", "checkpoints", "delete", path, "--yes")

    def said(name: str) -> str:
        answer = server.openai().completions.create(
            model=name, prompt="the quick", max_tokens=8, temperature=0
        )
        return str(answer.choices[0].text)

    assert said(model) == tokenizer.decode(sampled)
    assert said("toy") != said(model)
    shown = server.openai().models.retrieve(model).model_dump()
    assert shown["id"] == model


@pytest.mark.long
def test_all_parameters_are_a_model_without_a_base_to_load(
    server: Windlass, folder: Path, tmp_path: Path
) -> None:
    tokenizer = import_module("transformers").AutoTokenizer.from_pretrained(folder)
    prompt = tokenizer("the quick").input_ids
    _state, path, sampled = trained(server, prompt, {"windlass.full_parameters": "true"})
    shell = Shell(server, tmp_path)
    model = shell.object("tuning", "checkpoints", "register", path, "--suffix", "all")["id"]
    answer = server.openai().completions.create(
        model=model, prompt="the quick", max_tokens=8, temperature=0
    )
    assert answer.choices[0].text == tokenizer.decode(sampled)
    shown = server.openai().models.retrieve(model).model_dump()
    assert (shown["windlass"]["kind"], shown["windlass"]["base_model"]) == ("fine_tuned", "toy")


def test_a_published_checkpoint_becomes_the_model_of_who_registers_it(server: Windlass) -> None:
    _state, path, _tokens = trained(server, [3, 5, 8])
    run, _, checkpoint = path.removeprefix("tinker://").partition("/")
    url = f"/api/v1/training_runs/{run}/checkpoints/{checkpoint}"
    with server.http() as http, server.http() as elsewhere:
        project = http.post("/v1/projects", json={"title": "elsewhere"}).json()["id"]
        elsewhere.headers["OpenAI-Project"] = project
        refused = elsewhere.post(f"{url}/model", json={"suffix": "lent"})
        assert refused.status_code == 404
        http.post(f"{url}/publish").raise_for_status()
        answer = elsewhere.post(f"{url}/model", json={"suffix": "lent"})
        model = answer.raise_for_status().json()["model"]
        assert elsewhere.get(f"/v1/models/{model}").status_code == 200
        assert http.get(f"/v1/models/{model}").status_code == 404
        # The copy stays when nothing is lent any more.
        http.delete(f"{url}/publish").raise_for_status()
        assert elsewhere.post(f"{url}/model", json={"suffix": "more"}).status_code == 404
        assert elsewhere.get(f"/v1/models/{model}").status_code == 200


def test_a_checkpoint_answers_by_its_path_to_those_who_may_read_it(
    server: Windlass, folder: Path
) -> None:
    tokenizer = import_module("transformers").AutoTokenizer.from_pretrained(folder)
    state, path, sampled = trained(server, tokenizer("the quick").input_ids)
    run, _, checkpoint = path.removeprefix("tinker://").partition("/")
    url = f"/api/v1/training_runs/{run}/checkpoints/{checkpoint}"
    asked = {"model": path, "prompt": "the quick", "max_tokens": 8, "temperature": 0}
    turn = {"model": path, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}
    with server.http() as http, server.http() as elsewhere:
        project = http.post("/v1/projects", json={"title": "reader"}).json()["id"]
        elsewhere.headers["OpenAI-Project"] = project
        said = http.post("/v1/completions", json=asked, timeout=120)
        assert said.is_success, said.text
        answer = said.json()
        assert answer["choices"][0]["text"] == tokenizer.decode(sampled)
        assert answer["model"].startswith("ft:toy:")
        assert http.post("/v1/chat/completions", json=turn, timeout=120).is_success
        # It was made once.
        made = [one["id"] for one in http.get("/v1/models").json()["data"]]
        assert made.count(answer["model"]) == 1

        def refused(client: httpx.Client, **more: str) -> tuple[int, str]:
            found = client.post("/v1/chat/completions", json=turn | more, timeout=120)
            return found.status_code, found.json()["error"]["param"]

        assert refused(elsewhere) == (404, "model")
        assert refused(http, model=path + "x") == (404, "model")
        assert refused(http, model=f"tinker://{run}/../x") == (404, "model")
        assert refused(http, model=state) == (400, "model")
        http.post(f"{url}/publish").raise_for_status()
        read = elsewhere.post("/v1/completions", json=asked, timeout=120)
        assert read.is_success, read.text
        assert read.json()["choices"][0]["text"] == answer["choices"][0]["text"]
        http.delete(f"{url}/publish").raise_for_status()
        assert refused(elsewhere) == (404, "model")
        http.delete(url).raise_for_status()
        assert refused(http) == (404, "model")


def test_what_is_no_model_is_refused_by_its_name(server: Windlass, tmp_path: Path) -> None:
    _state, path, _tokens = trained(server, [3, 5, 8])
    run, _, checkpoint = path.removeprefix("tinker://").partition("/")
    url = f"/api/v1/training_runs/{run}/checkpoints/{checkpoint}/model"

    def asked(http: httpx.Client, **body: str) -> tuple[int, str]:
        answer = http.post(url, json={"suffix": "x", **body})
        return answer.status_code, answer.text

    with server.http() as http:
        for suffix in ("", "../up", "a/b", "-x", "x" * 65):
            status, text = asked(http, suffix=suffix)
            assert (status, "suffix" in text) == (400, True)
        status, text = asked(http, base_model="nobody")
        assert (status, "'nobody'" in text) == (409, True)
        model = http.post(url, json={"suffix": "gone"}).json()["model"]
        # The same suffix is of one base, whose model keeps its files.
        status, text = asked(http, suffix="gone", base_model="same")
        assert (status, model in text) == (409, True)
        status, text = asked(http, suffix="gone")
        assert (status, model in text) == (200, True)
        # No adapter of an adapter.
        status, text = asked(http, base_model=model)
        assert (status, "complete weights" in text) == (409, True)
        http.delete(f"/v1/models/{model}").raise_for_status()
        status, text = asked(http, suffix="gone")
        assert (status, "another suffix" in text) == (409, True)
    with pytest.raises(openai.NotFoundError):
        server.openai().models.retrieve(model)
