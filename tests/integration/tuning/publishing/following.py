"""A full-parameter run that publishes, and a model of a project whose engine follows it."""

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.support.processes.windlass import Windlass
from tests.support.waiting import wait_until

from windlass.client import Windlass as Client
from windlass.inference_api.routes import WEIGHT_VERSION

tinker: Any = import_module("tinker")
types: Any = tinker.types
PROMPT = [3, 5, 8, 13]
DATUM = types.Datum(
    model_input=types.ModelInput.from_ints([*PROMPT, *[3] * 7]),
    loss_fn_inputs={"target_tokens": [*PROMPT[1:], *[3] * 8], "weights": [1.0] * 11},
)


def settings(folder: Path, publishing: dict[str, Any]) -> dict[str, Any]:
    """Those of a server that trains all parameters of `toy`, and publishes."""
    return {
        "tuning": {
            "trainer": "lora",
            "model_folders": {"toy": str(folder)},
            "full_parameter_trainers": 2,
            "publishing": publishing,
        }
    }


@dataclass
class PublishingRun:
    """A run of all parameters; each step saves for samplers."""

    service: Any
    training: Any
    tokenizer: Any
    saved: int = 0

    @classmethod
    def begun(cls, server: Windlass, folder: Path) -> "PublishingRun":
        service = tinker.ServiceClient(
            base_url=server.url,
            api_key=f"tml-{server.owner_key}",
            user_metadata={"windlass.full_parameters": "true"},
        )
        training = service.create_lora_training_client(base_model="toy", seed=1).result()
        tokenizer = import_module("transformers").AutoTokenizer.from_pretrained(folder)
        return cls(service, training, tokenizer)

    @property
    def id(self) -> str:
        return str(self.training.get_info().model_id)

    @property
    def follow(self) -> str:
        return f"tinker://{self.id}"

    def step(self) -> tuple[str, str]:
        """Trains and saves; returns the checkpoint's path, and what it says greedily."""
        for _ in range(2):
            self.training.forward_backward([DATUM], "cross_entropy")
            self.training.optim_step(types.AdamParams(learning_rate=1e-2)).result()
        self.saved += 1
        path = str(self.training.save_weights_for_sampler(f"v{self.saved}").result().path)
        answer = (
            self.service.create_sampling_client(model_path=path)
            .result()
            .sample(
                prompt=types.ModelInput.from_ints(PROMPT),
                num_samples=1,
                sampling_params=types.SamplingParams(max_tokens=8, temperature=0.0),
            )
        )
        return path, str(self.tokenizer.decode(answer.result().sequences[0].tokens))


def imported(server: Windlass, name: str, folder: Path, project: str = "") -> None:
    """Imports the base model under a name, for one project."""
    with Client(server.url, server.owner_key, project=project) as client:
        client.models.import_folder(name, folder)


def asked(server: Windlass, model: str, project: str = "") -> tuple[str, str]:
    """The version that an answer names, and its text, greedily."""
    headers = {"OpenAI-Project": project} if project else {}
    raw = server.openai().completions.with_raw_response.create(
        model=model, prompt=PROMPT, max_tokens=8, temperature=0, extra_headers=headers
    )  # fmt: skip
    return raw.headers[WEIGHT_VERSION], str(raw.parse().choices[0].text)


def engine_of(server: Windlass, model: str, project: str = "") -> dict[str, Any]:
    """The only engine of a model, as `windlass engines` has it; empty without one."""
    headers = {"OpenAI-Project": project} if project else {}
    with server.http() as http:
        found = http.get("/v1/engines", headers=headers).raise_for_status().json()["data"]
    return next((one for one in found if one["model"] == model), {})


def until_followed(server: Windlass, model: str, version: int, project: str = "") -> None:
    """Waits until the engine has a version."""
    wait_until(
        lambda: engine_of(server, model, project).get("weight_version") == version,
        f"version {version}: {engine_of(server, model, project)}",
        60,
    )
