"""Tags of keys: set, changed and found by, and without any other meaning."""

from pathlib import Path

from tests.support.services.front import running_front
from tests.support.services.member_keys import Key


async def test_keys_are_found_by_their_tags(database_url: str, tmp_path: Path) -> None:
    async with running_front(database_url, tmp_path / "data") as front:
        owner = Key(front, "", front.owner_key, {})
        role = "organization_owner"
        one = await owner.make(role, tags={"team": "search", "env": "prod"})
        two = await owner.make(role, tags={"team": "search"})
        assert one.body["tags"] == {"team": "search", "env": "prod"}
        assert await owner.sees(**{"tags[team]": "search"}) == {one.id, two.id}
        both = {"tags[team]": "search", "tags[env]": "prod"}
        assert await owner.sees(**both) == {one.id}
        assert await owner.sees(**{"tags[team]": "sea"}) == set()
        # What is made with a key says nothing of it.
        child = await one.make(role)
        assert child.body["tags"] == {}
        body = {"tags": {"env": "test"}}
        changed = await owner.ask("PATCH", f"/v1/api_keys/{one.id}", json=body)
        assert changed.json()["tags"] == {"env": "test"}
        renamed = await owner.ask("PATCH", f"/v1/api_keys/{one.id}", json={"name": "n"})
        assert renamed.json()["tags"] == {"env": "test"}
        assert await owner.sees(**{"tags[team]": "search"}) == {two.id}
        rotated = await owner.ask("POST", f"/v1/api_keys/{one.id}/rotate", json={})
        assert rotated.json()["tags"] == {"env": "test"}
        for wrong in ({"team": ""}, {"a=b": "c"}):
            refused = await owner.ask("PATCH", f"/v1/api_keys/{two.id}", json={"tags": wrong})
            assert (refused.status_code, refused.json()["error"]["param"]) == (400, "tags")
        made = (await owner.ask("POST", "/v1/organizations", json={"title": "Bolt"})).json()["id"]
        elsewhere = {"OpenAI-Organization": made}
        theirs = await owner.ask(
            "GET", "/v1/api_keys", params={"tags[team]": "search"}, headers=elsewhere
        )
        assert theirs.json()["data"] == []
