"""Jobs outlive the API server, each once for its key."""

import json
from pathlib import Path

import pytest

from windlass_vllm.api.job_files import JobFiles
from windlass_vllm.api.jobs import JobQueue
from windlass_vllm.api.requests import Bounds, TrainRequest, read_request
from windlass_vllm.messages import JobEnded, StepDone, Train, VersionSaved
from windlass_vllm.refusal import Refused
from windlass_vllm.run_folder import JOBS, RunFolder

SAMPLE = {"context_ids": [1], "continuation_ids": [2]}
DATUM = {
    "model_input": {"chunks": [{"tokens": [1]}]},
    "loss_fn_inputs": {
        "target_tokens": {"data": [2], "dtype": "int64"},
        "weights": {"data": [1.0], "dtype": "float32"},
    },
}


def request(**words: object) -> TrainRequest:
    body = json.dumps({"samples": [SAMPLE], "epochs": 9} | words)
    return read_request(body.encode(), Bounds(vocabulary=9, context=9))


def queue_of(folder: Path) -> JobQueue:
    """The queue of an API server that starts."""
    return JobQueue(JobFiles(RunFolder(folder)))


async def test_jobs_are_done_in_their_order_by_the_next_server(tmp_path: Path) -> None:
    before = queue_of(tmp_path / "run")
    names = [(await before.submit(request())).name for _ in range(3)]
    running = await before.next()
    running.begin(0)
    running.step(StepDone(running.name, 1, 3.0, 1, 0.1))
    running.saved(VersionSaved(running.name, 1, "step-1"))
    await before.keep(running)

    after = queue_of(tmp_path / "run")
    found = [await after.next() for _ in names]
    assert [one.name for one in found] == names
    record = found[0].record
    assert (record.first_loss, record.saved_step, record.attempts) == (3.0, 1, 0)
    assert isinstance(record.work, Train)
    assert record.work.samples == request().samples
    assert record.work.identity == f"{names[0]}/1"


async def test_a_job_that_was_cancelled_as_it_ran_is_not_begun_again(tmp_path: Path) -> None:
    before = queue_of(tmp_path / "run")
    await before.submit(request())
    running = await before.next()
    running.begin(0)
    await before.cancel(running.name)
    assert (await queue_of(tmp_path / "run").next()).cancelled.is_set()


def test_what_killed_processes_left_is_removed(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    JobFiles(run)
    for name in (".checkpoint.abc", "checkpoint"):
        (run.path / name).mkdir()
        (run.path / name / "model.safetensors").touch()
    for name in ("progress-step-2.new", f"{JOBS}/train-1.new", f"{JOBS}/train-2"):
        (run.path / name).touch()
    run.drop_drafts()
    left = {str(one.relative_to(run.path)) for one in run.path.rglob("*")}
    assert left == {"checkpoint", "checkpoint/model.safetensors", JOBS, f"{JOBS}/train-2"}


async def test_a_key_is_one_job_for_the_next_server_too(tmp_path: Path) -> None:
    before = queue_of(tmp_path / "run")
    done = await before.submit(request(idempotency_key="a"))
    await before.end(await before.next(), JobEnded(done.name, "succeeded", 9))

    after = queue_of(tmp_path / "run")
    again = await after.submit(request(idempotency_key="a"))
    assert (again.name, again.state) == (done.name, "succeeded")
    with pytest.raises(Refused) as error:
        await after.submit(request(idempotency_key="a", epochs=2))
    assert error.value.reason == "idempotency_conflict"


async def test_a_number_comes_once(tmp_path: Path) -> None:
    before = queue_of(tmp_path / "run")
    for _ in range(2):
        await before.submit(request())
    job = await queue_of(tmp_path / "run").submit(request())
    assert job.record.number == 3


@pytest.mark.parametrize(
    "words",
    [
        {"guard": {"samples": [SAMPLE] * 100}},
        {"samples": [], "datums": [DATUM] * 100, "loss": "cross_entropy"},
    ],
)
async def test_what_ended_keeps_no_samples(tmp_path: Path, words: dict[str, object]) -> None:
    queue = queue_of(tmp_path / "run")
    job = await queue.submit(request(**words))
    path = tmp_path / "run" / JOBS / job.name
    long = path.stat().st_size
    await queue.cancel(job.name)
    assert path.stat().st_size < long / 2
    assert queue_of(tmp_path / "run").jobs[job.name].state == "cancelled"


async def test_the_step_that_trips_a_guard_counts(tmp_path: Path) -> None:
    queue = queue_of(tmp_path / "run")
    job = await queue.submit(request())
    job.step(StepDone(job.name, 1, 3.0, 1, 0.1))
    await queue.end(job, JobEnded(job.name, "failed", 2, "guard_tripped", kept_steps=0))
    found = queue_of(tmp_path / "run").jobs[job.name].described()
    assert (found["steps"], found["kept_steps"]) == (2, 0)


async def test_a_job_that_is_not_on_the_disk_was_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = queue_of(tmp_path / "run")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(Refused) as error:
        await queue.submit(request())
    assert (error.value.reason, queue.jobs) == ("not_written", {})


@pytest.mark.parametrize("damage", ["cut", "link", "other"])
async def test_what_is_no_job_is_left_out(tmp_path: Path, damage: str) -> None:
    queue = queue_of(tmp_path / "run")
    kept, damaged = await queue.submit(request()), await queue.submit(request())
    path = tmp_path / "run" / JOBS / damaged.name
    content = path.read_bytes()
    path.unlink()
    if damage == "link":
        (tmp_path / "elsewhere").write_bytes(content)
        path.symlink_to(tmp_path / "elsewhere")
    else:
        path.write_bytes(content[:-5] if damage == "cut" else b"\x80")
        path.chmod(0o600)
    assert list(queue_of(tmp_path / "run").jobs) == [kept.name]
