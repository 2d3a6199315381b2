"""The how-to on sharing a GPU, run as it is printed; its two models are tiny here."""

from pathlib import Path

import httpx
import yaml
from tests.support.factories import tuning_engines as make
from tests.support.processes import pages
from tests.support.processes.shell import PROGRAM, Shell
from tests.support.processes.windlass import make_single, running
from tests.support.waiting import wait_until

PAGE = "how-to/share-a-gpu.md"


def opened(http: httpx.Client, model: str) -> None:
    """Makes a run on a model, and waits until its trainer has it."""
    session = http.post("/api/v1/create_session", json={"sdk_version": "x"}).json()["session_id"]
    body = {"session_id": session, "model_seq_id": 0, "base_model": model}
    future = http.post("/api/v1/create_model", json=body).json()
    asked = {"request_id": future["request_id"]}

    def made() -> str | None:
        found: str | None = http.post("/api/v1/retrieve_future", json=asked).json().get("model_id")
        return found

    assert wait_until(made, "a run", 120)


def test_the_page_on_sharing_is_true(tmp_path: Path) -> None:
    plan, settings = pages.blocks(PAGE, "yaml")
    (tmp_path / "plan.yaml").write_text(plan)
    for seed, name in enumerate(("small", "large")):
        make.network(seed).save_pretrained(tmp_path / name)
        assert f"/models/{name}\n" in settings
        settings = settings.replace(f"/models/{name}\n", f"{tmp_path / name}\n")
    sections = yaml.safe_load(settings)
    single = make_single(tmp_path / "data", {"agent": {"enabled": False}, **sections})
    with running(single) as server:
        shell = Shell(server, tmp_path)
        with server.http() as http:
            for name in ("small", "large"):
                opened(http, name)
        environment = shell.environment | shell.owner
        environment["PATH"] = f"{Path(PROGRAM[0]).parent}:{environment['PATH']}"
        said = pages.run(pages.script(PAGE), environment, tmp_path)
        for word in ("exclusive", "least_recent", "weighted", "MODEL", "gpu-0", "active", "parked"):
            assert word in said
        found = shell.data("tuning", "turns", "list", "-o", "name").split()
        assert len(found) == 2
        # Whoever came last has the device: nobody waits for it any more.
        first = shell.object("tuning", "turns", "show", found[0])
        assert (first["base_model"], first["state"]) == ("large", "active")
        assert shell.object("tuning", "seats", "show", found[1])["state"] == "parked"
        assert shell.run("tuning", "seats", "show", "seat_x").returncode == 1
        (tmp_path / "plan.yaml").write_text(plan.replace("operations: 400", "operations: 0"))
        refused = shell.run("tuning", "simulate", "plan.yaml")
        assert refused.returncode == 2
        assert "$.workloads[0].operations" in refused.stderr
