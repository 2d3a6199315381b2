"""Pages of other origins: none may ask, but for those that are configured."""

from pathlib import Path

from tests.support.services.front import running_front

PREFLIGHT = {
    "origin": "https://app.example",
    "access-control-request-method": "POST",
    "access-control-request-headers": "authorization,content-type",
}


async def test_origins(database_url: str, tmp_path: Path) -> None:
    origins = ["https://app.example"]
    async with (
        running_front(database_url, tmp_path / "data", http={"cors_origins": origins}) as front,
        front.http() as http,
    ):
        asked = await http.options("/v1/chat/completions", headers=PREFLIGHT)
        assert asked.status_code == 200
        assert asked.headers["access-control-allow-origin"] == origins[0]
        assert "POST" in asked.headers["access-control-allow-methods"]
        answer = await http.get("/v1/models", headers={"origin": origins[0]})
        assert answer.headers["access-control-allow-origin"] == origins[0]
        other = await http.get("/v1/models", headers={"origin": "https://evil.example"})
        assert "access-control-allow-origin" not in other.headers


async def test_none_by_default(database_url: str, tmp_path: Path) -> None:
    async with running_front(database_url, tmp_path / "data") as front, front.http() as http:
        asked = await http.options("/v1/chat/completions", headers=PREFLIGHT)
        assert asked.status_code == 405
        assert "access-control-allow-origin" not in asked.headers
