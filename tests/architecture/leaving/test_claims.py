"""Who leaves is erased everywhere: no table and no root of object keys that nobody claims."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import windlass
from windlass.core.db import metadata
from windlass.core.leaving.claims import Fate, LeavingClaims, Scope
from windlass.migrations.tables import load_claims, load_tables
from windlass.users.leaving.conductor import SERVICES

ROOT = Path(windlass.__path__[0])
# Where keys of objects are made.
ROOMS = ("files", "models", "jobs", "rbac", "users", "inference", "usage", "sessions", "clusters",
         "federation", "core", "audit_chain", "tuning")  # fmt: skip
# Texts of that form which are no keys.
OTHERS = {
    "clusters": "a resource of an audit event",
    "namespaces": "a resource of an audit event",
    "kubernetes": "an action of an audit event",
    "flavor": "an item of a cluster's inventory",
    "cohort": "an item of a cluster's inventory",
    "cluster_queue": "an item of a cluster's inventory",
}
_KEY = re.compile(r"([a-z_-]+)/")
NAMES = {"title", "name", "email", "filename", "model", "spec", "url", "description"}


def made_roots(source: str) -> Iterator[str]:
    """The first segments of texts such as `f"files/{project}"` and `"logs/" + jobs.c.id`."""
    for node in ast.walk(ast.parse(source)):
        first = None
        if isinstance(node, ast.JoinedStr) and len(node.values) > 1:
            first = node.values[0]
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            first = node.left
        if isinstance(first, ast.Constant) and isinstance(first.value, str):
            match = _KEY.match(first.value)
            if match:
                yield match[1]


def test_a_new_root_is_seen() -> None:
    found = set(made_roots('a = f"vectors/{project}/x"\nb = "blobs/" + name\nc = f"{x}/y"'))
    assert found == {"vectors", "blobs"}


def test_every_root_of_object_keys_is_claimed() -> None:
    made = {
        root
        for room in ROOMS
        for file in (ROOT / room).rglob("*.py")
        for root in made_roots(file.read_text())
    }
    claimed = [one.root for claims in load_claims() for one in claims.objects]
    assert len(claimed) == len(set(claimed))
    assert made - set(OTHERS) == set(claimed)
    assert set(OTHERS) <= made


def test_every_table_is_claimed_once() -> None:
    load_tables()
    claimed = Counter(one.table.name for claims in load_claims() for one in claims.tables)
    assert set(claimed) == set(metadata.tables)
    assert max(claimed.values()) == 1


def test_every_service_that_erases_has_steps() -> None:
    assert sorted(one.service for one in load_claims() if one.erases) == sorted(SERVICES)


@pytest.mark.parametrize("claims", load_claims(), ids=lambda claims: claims.service)
def test_what_is_kept_says_why(claims: LeavingClaims) -> None:
    for one in claims.tables:
        assert one.why or one.fate is Fate.ERASED, one.table.name


def test_a_table_with_a_tenant_and_names_is_not_kept() -> None:
    scope = Scope("org", ("proj",), whole=True)
    for claims in load_claims():
        for one in claims.tables:
            columns = set(one.table.c.keys())
            if one.fate is Fate.ERASED:
                assert one.where is not None, one.table.name
                assert one.where(scope) is not None, one.table.name
            elif columns & {"organization_id", "project_id"}:
                assert columns & NAMES <= set(one.values), one.table.name
