"""Roles stand on one page, and services ask for permissions."""

import ast
import re
from pathlib import Path

from tools import generate_permissions_reference as permissions

from windlass import policy

ROOT = Path(__file__).parents[3]
ROLE = re.compile(r"\b({})\b".format("|".join(policy.ROLES)), re.IGNORECASE)
BY_NAME = re.compile(r"\brole\.(startswith|endswith|removeprefix|split)|\.roles (==|!=)")
# The page itself, what is generated, what has been, and what people type and read in a terminal.
LEFT_OUT = ("policy.py", "api/", "migrations/", "cli/", "demo/")
# Binds roles to people, so that it gives the first ones by name.
BINDS = "users/"
SERVICES = ROOT / "services/windlass"
FILES = [
    path
    for path in SERVICES.rglob("*.py")
    if not str(path.relative_to(SERVICES)).startswith(LEFT_OUT)
]


def names_roles(text: str) -> set[str]:
    """Mentions of a role in a module: a string, an identifier, or a comparison."""
    tree = ast.parse(text)
    said = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    said |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    said |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    found = {one for one in said if isinstance(one, str) and ROLE.fullmatch(_bare(one))}
    return found | {match.group() for match in BY_NAME.finditer(text)}


def _bare(name: str) -> str:
    return name.removeprefix("ROLE_")


def test_a_role_is_found_however_it_is_written() -> None:
    assert names_roles('if "project_owner" in roles: pass') == {"project_owner"}
    assert names_roles("role = pb.ROLE_PLATFORM_ADMIN") == {"ROLE_PLATFORM_ADMIN"}
    assert names_roles("role = policy.PROJECT_MEMBER") == {"PROJECT_MEMBER"}
    assert names_roles("any(role.startswith(prefix) for role in roles)") == {"role.startswith"}
    assert names_roles("mine = caller.roles == ()") == {".roles =="}


def test_no_service_knows_a_role() -> None:
    found = {str(path.relative_to(SERVICES)): names_roles(path.read_text()) for path in FILES}
    assert not {path: names for path, names in found.items() if names and BINDS not in path}


def test_what_binds_roles_has_their_names_from_the_policy() -> None:
    for path in (SERVICES / BINDS).glob("*.py"):
        tree = ast.walk(ast.parse(path.read_text()))
        strings = {node.value for node in tree if isinstance(node, ast.Constant)}
        assert not strings & set(policy.ROLES), path


def test_services_ask_for_permissions_that_exist() -> None:
    asked = {
        node.args[0].value
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "may"
        and isinstance(node.args[0], ast.Constant)
    }
    assert asked
    assert asked <= policy.PERMISSIONS


def test_the_page_on_permissions_is_true() -> None:
    page = permissions.reference()
    assert permissions.TARGET.read_text() == page, "run `make docs`"
    assert "| `JobsService.CreateJob` | tenant | `jobs.write` |" in page
