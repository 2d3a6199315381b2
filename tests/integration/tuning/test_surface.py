"""Every public method of the tinker SDK is answered, or refused by its name; none hangs."""

import asyncio
import inspect
import os
import warnings
from collections.abc import Callable
from datetime import UTC, datetime
from importlib import import_module
from typing import Any

import pytest
from tests.support.services.front import Front

# Loops are as loose about types as its users are.
tinker: Any = import_module("tinker")
types: Any = tinker.types
CLIENTS = {
    "service": tinker.ServiceClient, "training": tinker.TrainingClient,
    "sampling": tinker.SamplingClient, "rest": tinker.RestClient,
}  # fmt: skip
# What asks nothing of a server, or ends the client.
LOCAL = {
    "close", "create_rest_client", "get_telemetry", "get_console_url", "on_queue_state_change",
    "get_sampler_handle", "from_sampler_handle", "create",
}  # fmt: skip
# Loaded from the model's own hub, and of no trainer that computes nothing.
TOKENIZERS = {"training.get_tokenizer", "sampling.get_tokenizer"}
# Tinker's own billing, which is not served and says so.
REFUSED = {"rest.get_billing_usage", "rest.get_current_checkpoint_storage_usage"}
# What the SDK refuses by itself, without a JWT.
BY_THE_SDK = {"rest.whoami"}
DATUM = types.Datum(
    model_input=types.ModelInput.from_ints([1, 2, 3]),
    loss_fn_inputs={"target_tokens": [2, 3, 4], "weights": [1.0, 1.0, 1.0]},
)
PROMPT = types.ModelInput.from_ints([1, 2, 3])
PARAMS = types.SamplingParams(max_tokens=3)


def own_loss(data: Any, logprobs: Any) -> Any:
    return sum(one.sum() for one in logprobs), {"mine": 1.0}


def scaled(factor: int) -> Any:
    """A loss of its own for each factor: a session takes each once."""
    return lambda logprobs: (logprobs.sum() * factor, {})


class World:
    """Clients of the SDK and what they have made."""

    def __init__(self, url: str, key: str, project: str):
        self.project = project
        self.service = tinker.ServiceClient(base_url=url, api_key=key, project_id=project)
        self.rest = tinker.RestClient(base_url=url, api_key=key)
        self.training = self.service.create_lora_training_client(base_model="toy").result()
        self.run = self.training.model_id
        self.state = self.training.save_state("kept").result().path
        self.external = self.training.save_weights_external("kept").result().path
        self.losses = iter(range(1, 1000))
        self.sampling = self.service.create_sampling_client(base_model="toy").result()
        self.session = self.run.partition(":")[0]
        self.sampler = self.session + ":sample:0"
        self.names = iter(f"n{number}" for number in range(1000))

    def saved(self) -> str:
        """A checkpoint that may go."""
        return str(self.training.save_state(next(self.names)).result().path)

    def saved_id(self) -> str:
        return self.saved().split("/", maxsplit=3)[3]


NOW = datetime.now(UTC)
Arguments = Callable[[World], tuple[Any, ...]]
CALLS: dict[str, Arguments] = {
    "service.copy_weights": lambda w: (w.state,),
    "service.create_custom_loss": lambda w: (scaled(next(w.losses)), {"logprobs": 1}),
    "service.create_lora_training_client": lambda w: ("toy", 4),
    "service.create_sampling_client": lambda w: (None, "toy"),
    "service.create_training_client_from_state": lambda w: (w.state,),
    "service.create_training_client_from_state_with_optimizer": lambda w: (w.state,),
    "service.get_server_capabilities": lambda w: (),
    "training.create_sampling_client": lambda w: (
        w.training.save_weights_for_sampler(next(w.names)).result().path,
    ),
    "training.forward": lambda w: ([DATUM], "cross_entropy"),
    "training.forward_backward": lambda w: ([DATUM], "cross_entropy"),
    "training.forward_backward_custom": lambda w: ([DATUM], own_loss),
    "training.get_info": lambda w: (),
    "training.load_state": lambda w: (w.state,),
    "training.load_state_with_optimizer": lambda w: (w.state,),
    "training.optim_step": lambda w: (types.AdamParams(),),
    "training.save_state": lambda w: (next(w.names),),
    "training.save_weights_and_get_sampling_client": lambda w: (),
    "training.save_weights_external": lambda w: (next(w.names),),
    "training.save_weights_for_sampler": lambda w: (next(w.names),),
    "sampling.compute_logprobs": lambda w: (PROMPT,),
    "sampling.get_base_model": lambda w: (),
    "sampling.sample": lambda w: (PROMPT, 2, PARAMS),
    "rest.assign_session_project": lambda w: (w.session, w.project),
    "rest.copy_weights": lambda w: (w.state, w.project),
    "rest.delete_checkpoint": lambda w: (w.run, w.saved_id()),
    "rest.delete_checkpoint_from_tinker_path": lambda w: (w.saved(),),
    "rest.export_session_trace": lambda w: (w.session,),
    "rest.get_audit_log": lambda w: (),
    "rest.get_billing_usage": lambda w: (NOW, NOW),
    "rest.get_current_checkpoint_storage_usage": lambda w: (),
    "rest.get_external_weights_urls": lambda w: (w.external,),
    "rest.get_sampler": lambda w: (w.sampler,),
    "rest.get_server_capabilities": lambda w: (),
    "rest.get_session": lambda w: (w.session,),
    "rest.get_training_run": lambda w: (w.run,),
    "rest.get_training_run_by_tinker_path": lambda w: (w.state,),
    "rest.get_weights_info_by_tinker_path": lambda w: (w.state,),
    "rest.list_checkpoints": lambda w: (w.run,),
    "rest.list_sessions": lambda w: (),
    "rest.list_training_runs": lambda w: (),
    "rest.list_user_checkpoints": lambda w: (),
    "rest.publish_checkpoint_from_tinker_path": lambda w: (w.state,),
    "rest.search_sessions": lambda w: (types.SessionSearchRequest(),),
    "rest.set_checkpoint_ttl_from_tinker_path": lambda w: (w.state, 3600),
    "rest.unpublish_checkpoint_from_tinker_path": lambda w: (w.state,),
    "rest.whoami": lambda w: (),
}


def public_methods() -> set[str]:
    """Every method of the SDK's clients, an asynchronous twin by the name of the other."""
    return {
        f"{client}.{name.removesuffix('_async')}"
        for client, kind in CLIENTS.items()
        for name in dir(kind)
        if not name.startswith("_") and callable(getattr(kind, name)) and name not in LOCAL
    }


def test_every_public_method_has_a_call() -> None:
    assert len(public_methods()) > 40
    assert public_methods() == CALLS.keys() | TOKENIZERS


def answered(world: World, name: str, method: str) -> None:
    """Calls a method, outside of any loop, and waits for what it answers."""
    value = getattr(getattr(world, name.partition(".")[0]), method)(*CALLS[name](world))
    if hasattr(value, "result"):
        value.result()


async def answered_async(world: World, name: str, method: str) -> None:
    """Awaits the asynchronous twin."""
    value = getattr(getattr(world, name.partition(".")[0]), method)(*CALLS[name](world))
    while inspect.isawaitable(value):
        value = await value


def outcome(world: World, name: str) -> list[str]:
    """`answered`, or how it was refused, of a method and of its asynchronous twin."""
    client_name, _, method = name.partition(".")
    found = [_said(name, lambda: answered(world, name, method))]
    twin = f"{method}_async"
    if hasattr(getattr(world, client_name), twin):
        found.append(_said(name, lambda: asyncio.run(answered_async(world, name, twin))))
    return found


def _said(name: str, call: Callable[[], None]) -> str:
    try:
        call()
    except Exception as error:
        known = "not served here" in str(error) or name in BY_THE_SDK
        return "refused" if known else f"{type(error).__name__}: {str(error)[:300]}"
    return "answered"


def everything(url: str, key: str, project: str) -> dict[str, list[str]]:
    """What each method says."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        world = World(url, key, project)
        return {name: outcome(world, name) for name in CALLS}


@pytest.mark.timeout(240)
async def test_every_method_is_answered_or_refused_by_its_name(front: Front) -> None:
    os.environ["TINKER_TELEMETRY"] = "0"
    async with front.http() as http:
        [project] = (await http.get("/v1/projects")).json()["data"]
    key = "tml-" + front.owner_key
    found = await asyncio.to_thread(everything, front.url, key, project["id"])
    refused = REFUSED | BY_THE_SDK
    wrong = {
        name: said
        for name, said in found.items()
        if set(said) != ({"refused"} if name in refused else {"answered"})
    }
    assert wrong == {}
