"""Clients that leave, engines that die, keys that are revoked: all while answers are under way."""

import time
from typing import Any

import httpx
import pytest
from openai import APIError
from tests.faults.site import BASE, Site, cmdline, frozen, kill
from tests.support.waiting import Watch, wait_until

pytestmark = [pytest.mark.faults, pytest.mark.torch]
# More than a client waits for here, and within the model's context.
LONG = 460
GENERATED = "windlass_engine_generated_tokens_total"
# A second, and what a busy machine adds.
REVOKED_SECONDS = 2.0


def stream(site: Site, key: str | None = None) -> Any:
    """A long answer, begun."""
    return site.windlass.openai(key, max_retries=0).chat.completions.create(
        model=BASE,
        messages=[{"role": "user", "content": "Tell me a long story."}],
        stream=True,
        max_completion_tokens=LONG,
        extra_body={"ignore_eos": True},
    )


def answer(site: Site) -> Any:
    return site.windlass.openai(timeout=120).chat.completions.create(
        model=BASE, messages=[{"role": "user", "content": "Hi"}], max_completion_tokens=4
    )


def gauge(site: Site, name: str) -> float:
    """A number of the engine's own."""
    (socket,) = (
        word.removeprefix("--uds=") for word in cmdline(site.engine()) if word.startswith("--uds=")
    )
    with httpx.Client(transport=httpx.HTTPTransport(uds=socket)) as http:
        lines = http.get("http://engine/metrics").text.splitlines()
    return next(float(line.split()[-1]) for line in lines if line.startswith(f"{name} "))


def new_key(site: Site) -> dict[str, Any]:
    """A key of the owner's project."""
    with site.windlass.http() as http:
        project = http.get("/v1/projects").json()["data"][0]["id"]
        made = http.post("/v1/api_keys", json={"name": "short-lived", "project_id": project})
        key: dict[str, Any] = made.json()
        return key


def used(site: Site, key: dict[str, Any]) -> list[tuple[int, int]]:
    """Requests and tokens put out for a key, once there are any."""
    found = site.get("/usage", start_time=int(time.time()) - 86400, api_key_ids=key["id"])
    rows = [row for bucket in found["data"] for row in bucket["results"]]
    return [(r["num_model_requests"], r["output_tokens"]) for r in rows if r["num_model_requests"]]


def test_a_client_that_leaves_frees_the_engine_and_is_counted(site: Site) -> None:
    answer(site)
    key, written = new_key(site), gauge(site, GENERATED)
    begun = stream(site, key["value"])
    text = [next(begun).choices[0].delta.content for _ in range(4)]
    begun.close()
    wait_until(lambda: gauge(site, "windlass_engine_sequences_running") == 0, "a free engine", 20)
    ((requests, tokens),) = wait_until(lambda: used(site, key), "its usage", 20)
    assert requests == 1
    assert len(list(filter(None, text))) <= tokens < LONG
    assert tokens == gauge(site, GENERATED) - written


def test_a_killed_engine_is_an_error_chunk_and_comes_back(site: Site) -> None:
    answer(site)
    begun = stream(site)
    next(begun)
    engine = site.engine()
    with frozen(engine):
        kill(engine)
    with pytest.raises(APIError) as caught:
        for _ in begun:
            pass
    assert caught.value.message
    assert answer(site).usage.completion_tokens == 4
    again = site.engine()
    assert again.pid != engine.pid


def test_a_revoked_key_is_refused_within_a_second(site: Site) -> None:
    key = new_key(site)
    with site.windlass.http() as owner, site.windlass.http(key["value"]) as tenant:
        for _ in range(20):
            # Often enough that the gateway knows it by heart.
            assert tenant.get("/v1/models").status_code == 200
        assert owner.delete(f"/v1/api_keys/{key['id']}").status_code == 200
        revoked = Watch()
        wait_until(lambda: tenant.get("/v1/models").status_code == 401, "a refusal", 60)
        assert revoked.seconds() < REVOKED_SECONDS
        assert tenant.get("/v1/models").json()["error"]["code"] == "invalid_api_key"
