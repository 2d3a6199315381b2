"""Speed of a training, to estimate how long another one takes: a given one, or that of a job."""

from dataclasses import dataclass
from statistics import median

from windlass.cli.framework.calling import Call
from windlass.cli.jobs.methods import MethodName
from windlass.client.transport.urls import at

PATH = "/v1/fine_tuning/jobs"
# How many of the newest jobs are searched, and how many of a job's latest events.
SEARCHED, EVENTS = 200, 200
_FORBIDDEN = 403


@dataclass(frozen=True)
class TrainingSpeed:
    """Tokens in training steps by the second, and where the number is from."""

    tokens_per_second: float
    source: str


def measured_speed(call: Call, model: str, method: MethodName) -> TrainingSpeed | None:
    """Returns the speed of the newest job that trained the model by the method, if there is one.

    It is the median of the job's latest measurements. A key that may not read jobs has none.
    """
    from windlass.client.errors import WindlassError

    try:
        for job in call.client.pages(PATH, limit=SEARCHED, status=["succeeded"]):
            if (job["model"], job["windlass"]["method"]) != (model, method.value):
                continue
            if speeds := _measurements(call, job["id"]):
                return TrainingSpeed(median(speeds), f"of {job['id']}, which trained this model")
    except WindlassError as error:
        if error.status != _FORBIDDEN:
            raise
    return None


def _measurements(call: Call, job_id: str) -> list[float]:
    events = call.client.pages(at(PATH, job_id, "events"), limit=EVENTS)
    found = ((event.get("data") or {}).get("tokens_per_second") for event in events)
    return [float(speed) for speed in found if speed]
