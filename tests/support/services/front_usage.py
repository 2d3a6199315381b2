"""Usage as the front door of a test has counted it."""

import time
from typing import Any

from tests.support.services.front import Front
from tests.support.waiting import until

START = int(time.time()) - 86400


async def used(front: Front, requests: int, *, kind: str = "") -> dict[str, Any]:
    """The sums of usage, of the first kind or another, once they count so many requests."""
    async with front.http() as http:

        async def sums() -> dict[str, Any] | None:
            answer = await http.get("/v1/usage", params={"start_time": START, "limit": 31})
            assert answer.status_code == 200, answer.text
            page = answer.json()
            while page["next_page"] and not any(b["results"] for b in page["data"]):
                query = {"start_time": START, "limit": 31, "page": page["next_page"]}
                page = (await http.get("/v1/usage", params=query)).json()
            rows = [r for b in page["data"] for r in b["results"]]
            return next((r for r in rows if kind in ("", r["kind"])), None)

        return await until(sums, holds=lambda found: found["num_model_requests"] >= requests)
