"""The how-to on replays and forks, run as it is printed."""

from pathlib import Path

import yaml
from tests.support.factories import tuning_engines as make
from tests.support.processes import pages
from tests.support.processes.shell import PROGRAM, Shell
from tests.support.processes.windlass import make_single, running

PAGE = "how-to/replay-a-run.md"
FOLDER = "/models/Qwen3-0.6B"


def test_the_page_on_replays_is_true(tmp_path: Path) -> None:
    (settings,) = pages.blocks(PAGE, "yaml")
    loops = pages.blocks(PAGE, "python")
    make.network().save_pretrained(tmp_path / "model")
    assert FOLDER in settings
    sections = yaml.safe_load(settings.replace(FOLDER, str(tmp_path / "model")))
    for name, loop in zip(("loop.py", "further.py"), loops, strict=True):
        (tmp_path / name).write_text(loop)
    single = make_single(tmp_path / "data", {"agent": {"enabled": False}, **sections})
    with running(single) as server:
        shell = Shell(server, tmp_path)
        environment = shell.environment | shell.owner
        environment["PATH"] = f"{Path(PROGRAM[0]).parent}:{environment['PATH']}"
        environment |= {
            "TINKER_BASE_URL": server.url,
            "TINKER_API_KEY": f"tml-{server.owner_key}",
            "TINKER_TELEMETRY": "0",
        }
        said = pages.run(pages.script(PAGE), environment, tmp_path)
        assert said.splitlines()[-1] == "3.0"
        run = shell.data("tuning", "runs", "list", "-o", "name").split()[-1]
        found = shell.object("tuning", "replay", run)
        assert (found["agrees"], found["exclusive"], found["began_at"]) == (True, True, "seed")
        assert (found["results_compared"], found["weights_compared"]) == (6, 1)
        unknown = shell.run("tuning", "fork", run, "--at", "99")
        assert (unknown.returncode, "No such request" in unknown.stderr) == (1, True)
