"""Fine-tuning jobs through openai-python."""

from typing import Any

from tests.support.waiting import wait_until


def ended(client: Any, job: Any, seconds: float) -> Any:
    """Returns the job once it has ended, however it did."""

    def found() -> Any:
        now = client.fine_tuning.jobs.retrieve(job.id)
        return now if now.finished_at is not None else None

    return wait_until(found, f"the end of {job.id}", seconds)
