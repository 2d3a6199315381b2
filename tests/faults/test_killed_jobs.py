"""kill -9 of whatever takes part in a job, while it trains: it ends once, and as it should."""

import signal
from contextlib import suppress

import httpx
import psutil
import pytest
from tests.faults.site import STEPS_PER_EPOCH, Site, frozen, kill, postmaster
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.faults, pytest.mark.torch]


def test_a_job_survives_its_server(site: Site, training_file: str) -> None:
    job_id = site.create(training_file)
    site.until_trained(job_id)
    runner, trainer = site.runner(job_id), site.trainer(job_id)
    with frozen(trainer):
        site.windlass.kill()
        assert runner.is_running(), "the runner died with its server"
        site.windlass.start()
        site.windlass.wait_ready()
        assert site.job(job_id)["status"] == "running"
    job = site.assert_succeeded_once(job_id)
    assert job["windlass"]["attempt"] == 1
    assert site.steps(job_id) == list(range(1, 4 * STEPS_PER_EPOCH + 1))


@pytest.mark.long
def test_a_server_that_is_told_to_stop_goes_on_where_it_was(site: Site, training_file: str) -> None:
    job_id = site.create(training_file)
    site.until_trained(job_id, step=STEPS_PER_EPOCH // 2)
    server = site.windlass.processes["all"]
    server.send_signal(signal.SIGTERM)
    server.wait(60)
    site.assert_no_process()
    site.windlass.start()
    site.windlass.wait_ready()
    job = site.assert_succeeded_once(job_id)
    assert job["windlass"]["attempt"] == 2
    resumed = [e["message"] for e in site.events(job_id) if "continues after step" in e["message"]]
    assert len(resumed) == 1
    # The step at which it was told to stop was saved, so that none is made twice.
    assert site.steps(job_id) == list(range(1, 4 * STEPS_PER_EPOCH + 1))


def test_a_job_survives_its_database(site: Site, training_file: str) -> None:
    job_id = site.create(training_file)
    site.until_trained(job_id)
    with frozen(site.trainer(job_id)), site.windlass.http() as http:

        def refused() -> httpx.Response | None:
            # Again and again: it comes back so soon that nobody may notice.
            with suppress(OSError, psutil.Error, ValueError, IndexError):
                kill(postmaster(site.windlass.data))
            answer = http.get("/v1/fine_tuning/jobs", timeout=30)
            return answer if answer.status_code != 200 else None

        answer = wait_until(refused, "a request that found no database", 60)
        assert answer.status_code == 503, answer.text
        assert answer.json()["error"]["type"] == "service_unavailable_error"
        assert answer.json()["error"]["message"]
        wait_until(lambda: http.get("/readyz").status_code == 200, "readiness", 60)
    job = site.assert_succeeded_once(job_id)
    assert job["windlass"]["attempt"] == 1
