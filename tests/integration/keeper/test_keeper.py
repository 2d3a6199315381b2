"""The keeper of an engine in a pod: its door, its order, and what it does when others end."""

import asyncio
import json
import shutil
import signal
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from tests.support.agents.engine_machine import model_store, workload
from tests.support.agents.file_store import files
from tests.support.agents.kept_pod import DRAINED, NAMED, READY, KeptPod, kept_pod
from tests.support.factories.toy_model import make_adapter
from tests.support.waiting import soon, until

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.api.sessions.v1.sessions_pb2 import Target
from windlass.inference_api.routes import ENGINE_ROUTES
from windlass.tunnel.authority import Authority
from windlass_agent.executors.kubernetes.engines.doors import Doors
from windlass_agent.keeper.health import ALIVE, STARTED
from windlass_agent.tunnel.targets import Targets

pytestmark = [pytest.mark.torch, pytest.mark.asyncio(loop_scope="module")]
# What steers an engine, or tells of others.
STEERING = (
    "/load", "/health", "/metrics", "/v1/models", "/v1/load_lora_adapter",
    "/v1/unload_lora_adapter", "/sleep", "/pause", "/update_weights", "/v1/chat/completions/x",
    "/inference/v1/generate", "/abort_requests", "/render",
)  # fmt: skip


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pod(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[KeptPod]:
    with model_store(tmp_path_factory.mktemp("store")) as store:
        async with kept_pod(tmp_path_factory.mktemp("pod"), store) as made:
            yield made


async def test_it_serves_base_and_adapter_and_says_what_it_can(pod: KeptPod) -> None:
    assert pod.probe(READY) == 200
    assert pod.state().capabilities.context_length > 0
    base, adapter = await pod.say("toy"), await pod.say("ft:mv-a")
    assert base.status_code == adapter.status_code == 200
    assert base.json()["usage"]["completion_tokens"] == 8
    assert base.json()["choices"][0]["text"] != adapter.json()["choices"][0]["text"]


async def test_it_says_what_it_has_done(pod: KeptPod) -> None:
    await pod.say("toy")
    await until(lambda: pod.state().load.generated_tokens >= 8)
    assert pod.state().load.prompt_tokens > 0


async def test_a_picker_may_read_its_load_and_nothing_of_whom(pod: KeptPod) -> None:
    page = await until(pod.told)
    assert "vllm:num_requests_waiting 0\n" in page
    assert "toy" not in page
    assert "ft:" not in page


async def test_adapters_come_and_go_by_order(pod: KeptPod) -> None:
    pod.want("mv-a", "mv-b")
    await pod.reaches(pb.PHASE_RUNNING, loaded=["mv-a", "mv-b"])
    assert (await pod.say("ft:mv-b")).status_code == 200
    pod.want("mv-a")
    await pod.reaches(pb.PHASE_RUNNING, loaded=["mv-a"])
    assert (await pod.say("ft:mv-b")).status_code == 404


async def test_an_adapter_that_does_not_fit_is_told_while_others_are_served(pod: KeptPod) -> None:
    root, _ = pod.store
    make_adapter(root / "mv-toy", root / "mv-c", seed=3)
    pod.want("mv-a", "mv-b", "mv-c")
    await pod.reaches(pb.PHASE_RUNNING, loaded=["mv-a", "mv-b"])
    (refused,) = await until(lambda: [one for one in pod.state().adapters if one.error])
    assert refused.version_id == "mv-c"
    assert "do not fit into the" in refused.error
    # It gets the place of one that is not wanted, whose files go.
    pod.want("mv-a", "mv-c")
    await pod.reaches(pb.PHASE_RUNNING, loaded=["mv-a", "mv-c"])
    assert (await pod.say("ft:mv-c")).status_code == 200
    for folder in ("models", "adapters"):
        assert not (pod.folder / "weights" / folder / "mv-b").exists()
    pod.want("mv-a")
    await pod.reaches(pb.PHASE_RUNNING, loaded=["mv-a"])


async def test_the_tunnel_leads_to_the_door(pod: KeptPod) -> None:
    targets = Targets(endpoint=lambda _: "", doors=pod.doors)
    upstream: Any = await targets.open(Target(workload_id="eng-1"))
    socket = upstream._socket
    body = json.dumps({"model": "toy", "prompt": "the quick", "max_tokens": 2}).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: e\r\nContent-Length: {len(body)}\r\n\r\n"
    await socket.write(head.encode() + body)
    assert (await socket.read()).startswith(b"HTTP/1.1 200 ")
    upstream.close()


@pytest.mark.parametrize("path", STEERING)
async def test_nothing_that_steers_the_engine_is_reached(pod: KeptPod, path: str) -> None:
    async with pod.client() as client:
        for method in ("GET", "POST"):
            answer = await client.request(method, path, json={}, extensions=NAMED)
            assert answer.status_code == 404, (method, path)
            assert answer.json()["error"]["code"] == "unknown_url"
    assert path not in ENGINE_ROUTES


async def test_only_the_agent_comes_in(pod: KeptPod, tmp_path: Path) -> None:
    stranger = Doors(Authority.make(), lambda _: "127.0.0.1").tls
    bare = ssl.create_default_context(cadata=pod.authority.certificate.decode())
    # A certificate that the same authority gave to a door.
    engines = ssl.create_default_context(cadata=pod.authority.certificate.decode())
    certificate, key = pod.authority.issue("windlass-engine-eng-2")
    (tmp_path / "pem").write_bytes(certificate + key)
    engines.load_cert_chain(tmp_path / "pem")
    for tls in (stranger, bare, engines):
        async with pod.client(verify=tls) as client:
            with pytest.raises(httpx.TransportError):
                await client.post("/v1/completions", json={}, extensions=NAMED)
    other = {"sni_hostname": "windlass-engine-eng-2"}
    async with pod.client() as client:
        with pytest.raises(httpx.ConnectError, match="Hostname mismatch"):
            await client.post("/v1/completions", json={}, extensions=other)


async def test_a_client_that_leaves_ends_the_work_and_the_drain(pod: KeptPod) -> None:
    assert pod.engine
    # So that the request does not end by itself.
    pod.engine.send_signal(signal.SIGSTOP)
    try:
        asking = asyncio.create_task(pod.say("toy"))

        async def holds() -> "asyncio.Task[int] | None":
            """A drain that the request holds up, once it has come."""
            draining = asyncio.create_task(asyncio.to_thread(pod.probe, DRAINED, seconds=120))
            done, _ = await asyncio.wait({draining}, timeout=3)
            return None if done else draining

        draining = await until(holds)
        asking.cancel()
        assert await draining == 200
    finally:
        pod.engine.send_signal(signal.SIGCONT)
    assert (await pod.say("toy")).status_code == 200


async def test_a_refusal_is_the_engines_own(pod: KeptPod) -> None:
    answer = await pod.say("toy", max_tokens=-1)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "max_tokens"
    assert (await pod.say("nobody")).status_code == 404


async def test_a_body_has_a_length_and_no_more_than_may_be(pod: KeptPod) -> None:
    async def endless() -> AsyncIterator[bytes]:
        yield b"{}"

    async with pod.client() as client:
        unsaid = await client.post("/v1/completions", content=endless(), extensions=NAMED)
        large = b" " * (2**25 + 1)
        beyond = await client.post("/v1/completions", content=large, extensions=NAMED)
    assert (unsaid.status_code, beyond.status_code) == (411, 413)
    # One that is long is passed on as it comes, and the engine refuses it.
    prompt = "the " * 2**20
    assert (await pod.say("toy", prompt=prompt)).status_code == 400


async def test_an_agent_that_comes_back_finds_it_as_it_was(pod: KeptPod) -> None:
    await pod.server.stop(None)
    assert (await pod.say("toy")).status_code == 200
    pod.keepers._calls.clear()
    await pod.start_agent()
    await pod.reaches(pb.PHASE_RUNNING, loaded=["mv-a"])
    pod.want("mv-b")
    await pod.reaches(pb.PHASE_RUNNING, loaded=["mv-b"])
    pod.want("mv-a")
    await pod.reaches(pb.PHASE_RUNNING, loaded=["mv-a"])


async def test_an_engine_that_dies_is_out_of_the_routes_until_it_answers(pod: KeptPod) -> None:
    pod.kill_engine()
    await pod.reaches(pb.PHASE_STARTING, reason="Loading")
    assert pod.probe(READY) == 503
    refused = await pod.say("toy")
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "engine_stopped")
    pod.start_engine()
    await pod.reaches(pb.PHASE_RUNNING, loaded=["mv-a"])
    assert (await pod.say("ft:mv-a")).status_code == 200


async def test_a_keeper_that_dies_takes_its_engine_over(pod: KeptPod) -> None:
    pod.restart_keeper()
    await until(lambda: pod.probe(READY) == 200, 60, every=0.1)
    await pod.reaches(pb.PHASE_RUNNING, loaded=["mv-a"])
    assert (await pod.say("ft:mv-a")).status_code == 200


@pytest.mark.long
async def test_an_engine_that_answers_no_more_is_out_of_the_routes_and_started_anew(
    pod: KeptPod,
) -> None:
    pod.restart_keeper(UNANSWERED_SECONDS=4.0, PROBE_SECONDS=0.2)
    await until(lambda: pod.probe(READY) == 200, 60, every=0.1)
    await pod.reaches(pb.PHASE_RUNNING, loaded=["mv-a"])
    assert pod.engine
    pod.engine.send_signal(signal.SIGSTOP)
    asked = asyncio.create_task(pod.say("toy"))
    try:
        await pod.reaches(pb.PHASE_STARTING, reason="NotAnswering")
        assert (pod.probe(READY), pod.probe(ALIVE)) == (503, 503)
        # It may have been computed, which no 503 would say.
        with pytest.raises(httpx.RemoteProtocolError):
            await asked
        answer = await pod.say("toy")
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "engine_stopped")
        assert pod.probe(DRAINED) == 200
    finally:
        # As the kubelet does, which asks whether it is alive.
        pod.kill_engine()
    await pod.reaches(pb.PHASE_STARTING, reason="Loading")
    assert pod.probe(ALIVE) == 200
    pod.start_engine()
    await pod.reaches(pb.PHASE_RUNNING, loaded=["mv-a"])
    assert (await pod.say("ft:mv-a")).status_code == 200
    # One that was only slow comes back by itself.
    pod.engine.send_signal(signal.SIGSTOP)
    try:
        await pod.reaches(pb.PHASE_STARTING, reason="NotAnswering")
    finally:
        pod.engine.send_signal(signal.SIGCONT)
    await pod.reaches(pb.PHASE_RUNNING, loaded=["mv-a"])
    assert pod.probe(ALIVE) == 200
    pod.restart_keeper()
    await pod.reaches(pb.PHASE_RUNNING, loaded=["mv-a"])


async def test_a_keeper_without_an_agent_ends_when_it_should(pod: KeptPod, tmp_path: Path) -> None:
    alone = KeptPod(tmp_path, pod.store)
    alone.start_keeper()
    assert alone.keeper
    try:
        await until(lambda: alone.probe(STARTED) == 503, 60, every=0.1)
        alone.keeper.send_signal(signal.SIGTERM)
        async with soon(10):
            assert await asyncio.to_thread(alone.keeper.wait, 60) == 0
    finally:
        alone.keeper.kill()
        alone.keeper.wait()


@pytest.mark.parametrize("anew", [True, False], ids=["by another order", "by itself"])
async def test_weights_that_do_not_come_are_said_and_fetched_again(
    tmp_path: Path, anew: bool
) -> None:
    with model_store(tmp_path / "store") as store:
        pod = KeptPod(tmp_path, store)
        spec = workload(store).engine
        del spec.model_files[:]
        spec.model_files.extend(files(store, "mv-toy"))
        for file in spec.model_files:
            file.url = file.url.replace("mv-toy", "mv-none")
        pod.order = spec
        await pod.start_agent()
        try:
            pod.start_keeper()
            await pod.reaches(pb.PHASE_FAILED, reason="DownloadFailed")
            assert "HTTP 404" in pod.state().message
            assert pod.probe("/started") == 503
            if anew:
                pod.want()
            else:
                shutil.copytree(store[0] / "mv-toy", store[0] / "mv-none")
            await until(lambda: pod.probe("/started") == 200, 60, every=0.1)
        finally:
            await pod.close()
