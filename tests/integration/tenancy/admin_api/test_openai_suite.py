"""OpenAI's own tests of `client.admin` pass against a live server, whose answers nothing touches.

Between the two is a proxy that makes what requests presume (`tests/support/clients/openai_suite`).
"""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
from tests.support.clients.openai_admin import foreign_key
from tests.support.clients.openai_suite.objects import REFUSED
from tests.support.clients.openai_suite.proxy import running_proxy
from tests.support.clients.openai_suite.suite import ADMIN, run
from tests.support.fakes import vault
from tests.support.services.front import Front, running_front

# Files of OpenAI's tests of what is not there yet, and addresses that therefore answer 404.
LATER = {
    "test_external_storage.py": ("external_storage",),
    "test_spend_alerts.py": ("spend_alerts",),
    "test_spend_limit.py": ("spend_limit",),
    "test_usage.py": (
        "costs",
        *(
            f"usage/{kind}"
            for kind in (
                "audio_speeches", "audio_transcriptions", "code_interpreter_sessions",
                "completions", "decisions", "embeddings", "file_search_calls", "images",
                "moderations", "vector_stores", "web_search_calls",
            )
        ),
    ),
    "projects/test_rate_limits.py": ("projects/x/rate_limits",),
    "projects/test_service_tier_settings.py": ("projects/x/service_tier_settings",),
    "projects/test_spend_alerts.py": ("projects/x/spend_alerts",),
    "projects/test_spend_limit.py": ("projects/x/spend_limit",),
}  # fmt: skip
# Of test_external_keys.py: keys in other clouds, by the names of their tests.
CLOUDS = {"overload_2": "gcp", "overload_3": "azure", "overload_4": "oci"}
SUPPORTED = " and ".join(f"not {name}" for name in CLOUDS)


@pytest.fixture
def keeper() -> Iterator[str]:
    with vault.running() as address:
        yield address


@pytest.fixture
async def front(database_url: str, tmp_path: Path) -> AsyncIterator[Front]:
    keys = {"allowed_networks": ["127.0.0.0/8"], "allow_http": True}
    # As what shows the client certificates that OpenAI's tests activate.
    http = {"trusted_proxies": ["127.0.0.1/32"]}
    data = tmp_path / "data"
    async with running_front(database_url, data, external_keys=keys, http=http) as front:
        yield front


# Where a strict client parses an answer, a loose one does: the rest is for whoever has the time.
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("selected", "workers", "least"),
    [
        (f"strict and not Async and {SUPPORTED}", 0, 400),
        pytest.param(SUPPORTED, 2, 2000, marks=pytest.mark.long),
    ],
    ids=["strict", "all"],
)
async def test_openai_s_own_tests_pass(
    front: Front, keeper: str, tmp_path: Path, selected: str, workers: int, least: int
) -> None:
    options = ["-k", selected, "-n", str(workers), *(f"--ignore={ADMIN}/{name}" for name in LATER)]
    async with running_proxy(front.url, await foreign_key(front), keeper) as (url, proxy):
        result = await run(url, tmp_path / "report.xml", options)
    assert not result.failed, "\n".join([*proxy.refusals, result.output[-10_000:]])
    assert proxy.refusals == []
    assert not result.skipped
    assert len(result.passed) >= least
    # The others try empty ids, which openai-python refuses itself.
    assert proxy.answers > 0.5 * least


async def test_the_proxy_touches_no_answer(front: Front, keeper: str) -> None:
    key = await foreign_key(front)
    async with (
        running_proxy(front.url, key, keeper) as (url, _),
        httpx.AsyncClient(base_url=url) as proxied,
        front.http(key) as direct,
    ):
        shown = await proxied.get("/organization/projects/project_id")
        there = await direct.get(f"/v1/organization/projects/{shown.json()['id']}")
        assert (shown.status_code, shown.content) == (there.status_code, there.content) == (
            200, there.content,
        )  # fmt: skip
        refused = await proxied.post("/organization/groups", json={"nam": "x"})
        same = await direct.post("/v1/organization/groups", json={"nam": "x"})
        assert (refused.status_code, refused.content) == (400, same.content)


async def test_what_is_not_there_yet_is_not_found(front: Front) -> None:
    async with front.http(await foreign_key(front)) as http:
        for path in (path for paths in LATER.values() for path in paths):
            answer = await http.get(f"/v1/organization/{path}")
            assert (answer.status_code, answer.json()["error"]["code"]) == (404, "unknown_url")


async def test_what_the_proxy_leaves_out_is_refused_by_its_name(front: Front) -> None:
    async with front.http(await foreign_key(front)) as http:
        http.base_url = http.base_url.join("/v1/organization/")
        room = f"projects/{(await http.post('projects', json={'name': 'Red'})).json()['id']}"
        asked: dict[str, tuple[str, dict[str, str]]] = {
            "projects": ("projects", {"name": "Blue"}),
            "projects/hosted_tool_permissions": (f"{room}/hosted_tool_permissions", {}),
            "projects/service_accounts": (f"{room}/service_accounts", {"name": "Bot"}),
            "users": ("users/stranger", {}),
        }
        for resource, fields in REFUSED.items():
            path, body = asked[resource]
            for name, value in fields.items():
                answer = await http.post(path, json={**body, name: value})
                error = answer.json()["error"]
                code = "invalid_value" if name == "geography" else "unsupported_parameter"
                assert (error["param"], error["code"]) == (name, code)
        for cloud in CLOUDS.values():
            answer = await http.post("external_keys", json={"name": "x", "type": cloud})
            assert (answer.status_code, answer.json()["error"]["param"]) == (400, "type")
        both = {"role": "member", "user_id": "ann", "email": "ann@example.com"}
        contradicting = (
            await http.post(f"{room}/users", json=both),
            await http.get("audit_logs?event_types[]=api_key.created&tenant_only=true"),
        )
        assert [answer.status_code for answer in contradicting] == [400, 400]
