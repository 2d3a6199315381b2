"""The Python SDK: OpenAI's client for what OpenAI has, and ours for the rest.

>>> windlass = Windlass(base_url="http://127.0.0.1:8080", api_key="wl-...")
>>> windlass.models.import_folder("llama-3.2-1b", Path("./llama"))
>>> windlass.openai.fine_tuning.jobs.create(model="llama-3.2-1b", training_file="file-...")

Or, in the manner of Kubeflow's SDK, by a typed configuration of `windlass.backends`:

>>> trainer = BuiltinTrainer(config=TRLConfig(peft_config=TRLPeftConfig(r=16)))
>>> job = windlass.train(trainer, model="llama-3.2-1b", training_file=Path("chat.jsonl"))
>>> windlass.wait_for_job(job["id"])["fine_tuned_model"]

May import `windlass.backends`, `windlass.kubernetes`, `windlass.modelfiles` and the backoff of
`windlass.core`; never a service.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from windlass.client.errors import ConnectionFailed, WindlassError
    from windlass.client.windlass import Windlass

__all__ = ["ConnectionFailed", "Windlass", "WindlassError"]


def __getattr__(name: str) -> Any:
    """Loads the client when it is used: the command imports this package to print its help."""
    if name == "Windlass":
        from windlass.client.windlass import Windlass

        return Windlass
    if name in __all__:
        from windlass.client import errors

        return getattr(errors, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
