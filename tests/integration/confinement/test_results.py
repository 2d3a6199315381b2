"""Walls of what reads a trained model: the exporter and the evaluator of a job."""

import os
import socket
import sys

import pytest
from tests.integration.confinement import looking
from tests.integration.runner.cases import Case
from tests.support.environments.sandbox import needed_sandbox
from tests.unit.graders.test_definitions import CHECK

from windlass.api.runner.v1 import runner_pb2 as pb
from windlass.confinement import confinement
from windlass_agent.runner.supervisor.trainer import environment

# Beside those that are named for it: where bwrap and Python say where and in which locale they run.
OWN = {"GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "PWD", "LC_CTYPE"}
# Leaves an adapter, and a Python that looks around whatever it is told to run.
TRAIN = """
import sys
from pathlib import Path
output = Path(sys.argv[1])
(output / "adapter_config.json").write_text("{}")
(output / "python").write_text(f"#!{sys.executable}\\n" + LOOK)
(output / "python").chmod(0o755)
"""
LOOK = """
import json, os, socket

def attempt(do):
    try: return str(do())
    except OSError as error: return type(error).__name__

print("FOUND", json.dumps({
    "read": {path: attempt(lambda: len(open(path, "rb").read())) for path in READ},
    "written": {path: attempt(lambda: open(path, "ab").write(b"x")) for path in WRITTEN},
    "environ": dict(os.environ),
    "interfaces": [name for _, name in socket.if_nameindex()],
    "network": attempt(lambda: socket.create_connection(("127.0.0.1", PORT)) and "open"),
}), flush=True)
"""


@pytest.mark.parametrize(
    ("log", "writes"), [("export.log", "export"), ("evaluation.log", "evaluation/answers")]
)
async def test_it_sees_the_models_and_nothing_else(case: Case, log: str, writes: str) -> None:
    needed_sandbox()
    case.assign(rows=case.prompts(4), method="reinforcement", grader=CHECK)
    case.agent.assignment.backend = looking.NAME
    case.agent.assignment.exports.append(pb.EXPORT_MERGED)
    case.evaluate(case.prompts(2), CHECK)
    work = case.workdir
    own, secret = work / "output" / "adapter_config.json", work.parent / "owner.key"
    secret.write_text("a secret")
    files = ("spool.jsonl", "trainer.jsonl", "grader.json", "dataset/train.jsonl")
    outside = [secret, case.agent.socket, *(work / name for name in files)]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        names = {
            "READ": [*map(str, outside), str(own)],
            "WRITTEN": [str(own), str(work / writes / "x")],
            "PORT": listener.getsockname()[1],
        }
        look = "".join(f"{name} = {value!r}\n" for name, value in names.items()) + LOOK
        looking.plug_in(work / "site", sys.executable, f"LOOK = {look!r}\n{TRAIN}")
        runner = await case.start(
            walls=confinement("required"),
            environ={"PYTHONPATH": str(work / "site"), "WINDLASS_AUTH__SECRETS_KEY": "a secret"},
            python=str(work / "output" / "python"),
        )
        await runner.wait()

    said = looking.found(work / log)
    assert said["read"].pop(str(own)) == "2", "the adapter"
    assert set(said["read"].values()) == {"FileNotFoundError"}
    assert said["written"] == {str(own): "OSError", str(work / writes / "x"): "1"}
    named = environment({**os.environ, "OMP_NUM_THREADS": "1"}, work, work / "trainer.jsonl")
    assert set(said["environ"]) <= named.keys() | OWN
    assert not [value for value in said["environ"].values() if "secret" in value]
    assert said["interfaces"] == ["lo"]
    assert said["network"] != "open"
