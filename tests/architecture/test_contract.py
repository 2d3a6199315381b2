"""The contract and its generated code."""

import filecmp
import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf import descriptor_pool

from windlass.api.auth.v1 import auth_pb2
from windlass.core.rpc.rules import rule_of
from windlass.policy import PERMISSIONS

ROOT = Path(__file__).parents[2]
PROTOS = sorted(path.relative_to(ROOT / "proto") for path in (ROOT / "proto").rglob("*.proto"))


def methods() -> list[str]:
    pool = descriptor_pool.Default()
    names = []
    for proto in PROTOS:
        module = str(proto.with_suffix("")).replace("/", ".") + "_pb2"
        importlib.import_module(module)
        for service in pool.FindFileByName(str(proto)).services_by_name.values():
            names += [f"/{service.full_name}/{method.name}" for method in service.methods]
    return names


@pytest.mark.parametrize("method", methods())
def test_every_rpc_has_a_rule(method: str) -> None:
    rule = rule_of(method)
    assert rule is not None, "an RPC without a rule is refused"
    assert rule.audience != auth_pb2.AUDIENCE_UNSPECIFIED
    if rule.audience == auth_pb2.AUDIENCE_TENANT:
        assert rule.permission in PERMISSIONS, "no role grants this permission"
    else:
        assert not rule.permission, "only the tenant audience has permissions"


@pytest.mark.parametrize("method", [one for one in methods() if one.split("/")[2][:4] == "List"])
def test_every_list_is_in_pages_or_parts(method: str) -> None:
    service, name = method.strip("/").split("/")
    found = descriptor_pool.Default().FindServiceByName(service).FindMethodByName(name)
    # A stream cuts its answer into parts.
    if found.server_streaming:
        return
    asked, answered = found.input_type.fields_by_name, found.output_type.fields_by_name
    assert {"after", "limit"} <= set(asked)
    assert "has_more" in answered


def test_only_enrolment_is_anonymous() -> None:
    anonymous = [
        method
        for method in methods()
        if (rule := rule_of(method)) and rule.audience == auth_pb2.AUDIENCE_ANONYMOUS
    ]
    assert anonymous == ["/windlass.api.clusters.v1.ClustersAgentService/Enroll"]


def test_generated_code_is_what_the_protos_say(tmp_path: Path) -> None:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    subprocess.run(
        [sys.executable, str(ROOT / "tools" / "generate_proto.py"), str(tmp_path)],
        check=True,
        env=environment,
        capture_output=True,
    )
    made, kept = tmp_path / "windlass" / "api", ROOT / "services" / "windlass" / "api"
    names = {path.relative_to(made) for path in made.rglob("*.py*") if path.is_file()}
    there = {
        path.relative_to(kept)
        for path in kept.rglob("*.py*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert names == there
    differing = [
        str(name) for name in names if not filecmp.cmp(made / name, kept / name, shallow=False)
    ]
    assert not differing, "run `make proto`"
