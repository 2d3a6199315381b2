"""The how-to on webhooks, run as it is printed, against a real receiver."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.fakes.webhook_receiver import ALLOWED, receiving
from tests.support.processes import pages
from tests.support.processes.shell import PROGRAM, Shell
from tests.support.processes.windlass import Windlass, make_single, running

PAGE = "how-to/be-told-when-a-job-ends.md"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Windlass]:
    settings = {"agent": {"enabled": False}, "webhooks": ALLOWED}
    with running(make_single(tmp_path_factory.mktemp("page") / "data", settings)) as server:
        yield server


def test_the_page_on_webhooks_is_true(
    server: Windlass, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shell = Shell(server, tmp_path)
    environment = shell.environment | shell.owner
    environment["PATH"] = f"{Path(PROGRAM[0]).parent}:{environment['PATH']}"
    with receiving() as receiver:
        given = f"receiver={receiver.url}"
        made = f"{given}\n{pages.script(PAGE, until='Receive')}\necho $OPENAI_WEBHOOK_SECRET"
        shown = pages.run(made, environment, tmp_path).splitlines()
        secret = shown.pop()
        assert "ours" in shown[1]
        assert "succeeded, failed, cancelled" in shown[1]
        assert secret not in shell.data("webhooks", "list", "-o", "json")
        receiver.statuses = [503]
        webhook = shell.data("webhooks", "list", "-q", "-o", "name").strip()
        refused = shell.run("webhooks", "test", webhook, "--on", "failed")
        assert (refused.returncode, "status 503" in refused.stderr) == (1, True)

        client = server.openai()
        scope: dict[str, Any] = {"client": client, "receiver": receiver.url, "secret": secret}
        create, receive = pages.blocks(PAGE, "python")
        exec(create, scope)
        mine = scope["webhook"]
        assert client.webhooks.retrieve(mine.id).url == receiver.url
        # Of those that were made within one second, either comes first.
        assert {one.id for one in client.webhooks.list()} == {mine.id, webhook}
        sample = client.webhooks.test(mine.id, event_type="fine_tuning.job.failed")
        assert (sample.status_code, sample.webhook_endpoint_id) == (200, mine.id)
        assert client.webhooks.delete(mine.id).deleted

        exec(receive, scope)
        scope["receive"](*receiver.requests[0])
        assert "ftjob-sample" in capsys.readouterr().out
        with pytest.raises(Exception, match="signature"):
            scope["receive"](*receiver.requests[2])
    rest = pages.script(PAGE, after="Receive")
    pages.run(f"webhook={webhook}\n{rest}", environment, tmp_path)
    assert webhook not in shell.data("webhooks", "list")
    assert secret not in server.log()
