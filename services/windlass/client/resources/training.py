"""Training by typed configurations, in the manner of Kubeflow's `TrainerClient`."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windlass.client.resources.runtimes import Runtime
from windlass.kubernetes.quantities import quantity
from windlass.kubernetes.resources import NVIDIA_GPU

if TYPE_CHECKING:
    from windlass.backends import BuiltinTrainer, LLMBackend
    from windlass.client.resources.files import Files
    from windlass.client.resources.jobs import Jobs

PATH = "/v1/runtimes"
POLL_SECONDS = 1.0
_AMOUNTS = {"gpu": "gpus", NVIDIA_GPU: "gpus", "cpu": "cpus", "memory": "memory_bytes"}


class TrainingMethods:
    """Methods of a client beyond OpenAI's resources: `train` and the following of jobs.

    Every method raises WindlassError for a refusal, as the client does.
    """

    files: "Files"
    jobs: "Jobs"

    def pages(self, path: str, *, limit: int | None = None, **params: Any) -> Iterator[Any]:
        """Items of a list."""
        raise NotImplementedError

    def train(
        self,
        trainer: "BuiltinTrainer",
        *,
        model: str,
        training_file: str | Path,
        validation_file: str | Path | None = None,
        runtime: Runtime | str | None = None,
        suffix: str = "",
        metadata: Mapping[str, str] | None = None,
        export: Sequence[str] = (),
    ) -> dict[str, Any]:
        """A new job that trains `model` with the trainer's configuration, exactly as it is.

        A file is the id of one that is there, or a path of one to upload. A job
        that names a `runtime` is refused where no live cluster offers it. Raises InvalidConfig for
        a configuration that makes no job, and ValueError for a runtime of another backend.
        """
        config = trainer.config
        expected = runtime.name if isinstance(runtime, Runtime) else runtime
        if expected not in (None, config.name):
            raise ValueError(f"The runtime {expected!r} does not support {type(config).__name__}.")
        windlass = windlass_of(config)
        if expected:
            windlass["runtime"] = expected
        if export:
            windlass["export"] = list(export)
        request: dict[str, Any] = {
            "model": model,
            "training_file": self._file(training_file),
            "windlass": windlass,
        }
        if validation_file is not None:
            request["validation_file"] = self._file(validation_file)
        if suffix:
            request["suffix"] = suffix
        if metadata:
            request["metadata"] = dict(metadata)
        return self.jobs.create(request)

    def list_runtimes(self) -> list[Runtime]:
        """The runtimes that live clusters offer to the project, by name."""
        return [Runtime.of(one) for one in self.pages(PATH)]

    def get_runtime(self, name: str) -> Runtime:
        """Returns the runtime of that name; raises LookupError."""
        found = self.list_runtimes()
        for runtime in found:
            if runtime.name == name:
                return runtime
        offered = ", ".join(runtime.name for runtime in found) or "none"
        raise LookupError(f"No live cluster offers {name!r} to the project; offered: {offered}.")

    def get_job(self, job_id: str) -> dict[str, Any]:
        """Returns one job, as the API gives it."""
        return self.jobs.get(job_id)

    def get_job_events(self, job_id: str) -> Iterator[dict[str, Any]]:
        """A job's events from the first on, live until it has ended."""
        return self.jobs.events(job_id)

    def get_job_logs(self, job_id: str, *, follow: bool = False) -> Iterator[str]:
        """The log's lines, without their ends; with `follow` until the job has ended."""
        rest = b""
        for piece in self.jobs.log(job_id, follow=follow):
            *lines, rest = (rest + piece).split(b"\n")
            yield from (line.decode(errors="replace") for line in lines)
        if rest:
            yield rest.decode(errors="replace")

    def wait_for_job(self, job_id: str, *, timeout: float | None = None) -> dict[str, Any]:
        """The job once it has ended, however that is; raises TimeoutError after `timeout` seconds.

        Its `status` is `succeeded`, `failed` or `cancelled`.
        """
        if timeout is None:
            return self.jobs.wait(job_id)
        deadline = time.monotonic() + timeout
        while (job := self.jobs.get(job_id))["finished_at"] is None:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"The job {job_id} is {job['status']} after {timeout:g} s.")
            time.sleep(min(POLL_SECONDS, left))
        return job

    def _file(self, given: str | Path) -> str:
        if isinstance(given, Path):
            return str(self.files.upload(given)["id"])
        return given


def windlass_of(config: "LLMBackend") -> dict[str, Any]:
    """The request's `windlass` for a configuration: its document, and the resources beside it."""
    asked = config.resources_per_node or {}
    if asked:
        config = replace(config, resources_per_node=None)  # type: ignore[type-var]  # a dataclass
    windlass: dict[str, Any] = {
        "backend": config.name,
        "document": config.to_document(),
        "schema_version": config.schema_version,
    }
    if asked:
        windlass["resources"] = dict(_resource(name, value) for name, value in asked.items())
    return windlass


def _resource(name: str, value: Any) -> tuple[str, int]:
    if name.lower() not in _AMOUNTS:
        raise ValueError(f"resources_per_node has {name!r}; jobs take gpu, cpu and memory.")
    try:
        amount = quantity(str(value))
    except ValueError:
        amount = Fraction(-1)
    if amount < 0 or amount.denominator != 1:
        raise ValueError(
            f"resources_per_node[{name!r}] must be a whole number, not {str(value)!r}."
        )
    return _AMOUNTS[name.lower()], amount.numerator
