"""A project with a data key: a job trains, its model answers, nothing lies plain in the store."""

import pytest
from tests.e2e.test_main_path import ENOUGH, right, write
from tests.support.processes.windlass import Windlass

from windlass.client import Windlass as Client
from windlass.core.objects.sealing.frames import MAGIC
from windlass.demo.questions import split

pytestmark = pytest.mark.torch


def test_a_job_trains_and_serves_from_sealed_objects(
    windlass: Windlass, base_model: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    train, held_out = split()
    with windlass.http() as http:
        made = http.post("/v1/organization/projects", json={"name": "Sealed"}).json()["id"]
        # Wrapped by the installation's own key, which every process has.
        body = {"rotate_data_key": True}
        http.post(f"/v1/organization/projects/{made}", json=body).raise_for_status()
    client = windlass.openai(project=made)
    path = write(tmp_path_factory.mktemp("sealed") / "train.jsonl", train)
    file = client.files.create(file=path, purpose="fine-tune")
    job = client.fine_tuning.jobs.create(
        model=base_model, training_file=file.id, suffix="sealed", seed=11
    )
    with Client(windlass.url, windlass.owner_key, project=made) as ours:
        list(ours.jobs.events(job.id))
    job = client.fine_tuning.jobs.retrieve(job.id)
    assert job.status == "succeeded", (job.error, windlass.logs())
    assert job.fine_tuned_model
    assert right(client, job.fine_tuned_model, held_out, temperature=0) >= ENOUGH
    assert client.files.content(file.id).content == path.read_bytes()
    assert job.result_files
    assert b"train_loss" in client.files.content(job.result_files[0]).content
    if windlass.objects is None:
        content = windlass.data / "objects" / "content"
        for root in ("files", "artifacts", "logs"):
            stored = [one for one in (content / root / made).rglob("*") if one.is_file()]
            assert stored, root
            for one in stored:
                assert one.read_bytes().startswith(MAGIC), one
