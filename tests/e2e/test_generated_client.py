"""A client that openapi-python-client generates from /openapi.json does what its types say."""

import json
import subprocess
from pathlib import Path

import pytest
from tests.support.clients import environments
from tests.support.factories.tenants import Tenants
from tests.support.processes.front_door import MODEL, import_model

SCRIPT = Path(environments.__file__).with_name("generated_calls.py")


@pytest.fixture(scope="module")
def generated(tenants: Tenants, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that holds the package `generated`."""
    folder = tmp_path_factory.mktemp("client")
    with tenants.member.http() as http:
        (folder / "openapi.json").write_bytes(http.get("/openapi.json").content)
    programs = environments.generator()
    done = subprocess.run(
        [
            programs / "openapi-python-client", "generate", "--path", folder / "openapi.json",
            "--meta", "none", "--output-path", folder / "generated",
        ],
        env={"PATH": f"{programs}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    # It leaves out, with a warning, whatever a schema does not say clearly.
    assert "Warning" not in done.stdout + done.stderr, done.stdout + done.stderr
    return folder


def test_a_generated_client_trains(tenants: Tenants, generated: Path) -> None:
    caller = tenants.member
    with caller.http() as http:
        assert import_model(http, "of-a-generated-client", MODEL).status_code == 200
    done = subprocess.run(
        [
            environments.generator() / "python", SCRIPT,
            caller.windlass.url, caller.key, "of-a-generated-client",
        ],
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(generated)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert "of-a-generated-client" in said.pop("models")
    assert said == {
        "file": ["train.jsonl", "fine-tune", True],
        "job": ["fine_tuning.job", "queued", True],
        "events": ["fine_tuning.job.event"],
        "cancelled": "cancelled",
        "refused": [404, "model_not_found"],
        "deleted": True,
    }
