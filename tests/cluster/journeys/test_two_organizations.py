"""Two organizations on two replicas and one cluster: each by its own issuer, none sees the other.

A person joins by a group, tunes and chats without ever seeing a key, and is out within a second;
a pod and a job of CI work without a stored secret.
"""

import contextlib
import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.fixtures import Clusters
from tests.cluster.objects import pods
from tests.cluster.provision.images import BUSYBOX
from tests.cluster.stages.journey import BASE, QUOTA_BYTES, Journey
from tests.cluster.stages.replicated import replicated
from tests.cluster.stages.tenant import Person, Tenant, about
from tests.support.environments import made_once
from tests.support.environments.oidc_provider import running_issuer
from tests.support.environments.postgres import reachable_folder, remove_database
from tests.support.fakes.oidc_issuer import claims, jwks, signed, signing_key
from tests.support.services.workloads import GRANT, JWT
from tests.support.waiting import wait_until

from windlass.client import Windlass as Client
from windlass.demo.questions import split

pytestmark = [pytest.mark.torch, pytest.mark.long, pytest.mark.timeout(2400)]
PEOPLE = {"acme": ("ann", "ann@acme.example"), "globex": ("gus", "gus@globex.example")}
TALKER = "talker"
# A second, and what a busy machine adds.
SOON = 4.0


@pytest.fixture(scope="module")
def tenants(clusters: Clusters) -> Iterator[dict[str, Tenant]]:
    with contextlib.ExitStack() as stack:
        east = stack.enter_context(clusters.open("east"))
        folder = stack.enter_context(reachable_folder())
        windlass, address, store = stack.enter_context(replicated(folder, east.host))
        for one in windlass.replicas:
            stack.callback(remove_database, one.data)
        http = stack.enter_context(windlass.http())
        journey = Journey(windlass, http, {"east": east}, address, others=[store])
        journey.join("east", folder / "east", stack)
        journey.share_out("east", memory=2 * QUOTA_BYTES)
        with Client(windlass.url, windlass.owner_key) as client:
            client.models.import_folder(BASE, made_once.tiny_model(), for_everyone=True)
            client.models.import_folder(TALKER, talker(folder / TALKER), for_everyone=True)
        made = {}
        for name, (person, mail) in PEOPLE.items():
            callback = f"{windlass.url}/login/callback"
            issuer = stack.enter_context(running_issuer(callback, {person: about(person, mail)}))
            made[name] = Tenant.made(journey, name, "east", issuer)
        yield made


def talker(folder: Path) -> Path:
    """The tiny model with a context in which an answer takes long."""
    shutil.copytree(made_once.tiny_model(), folder)
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"max_position_embeddings": 32768}))
    return folder


@pytest.fixture(scope="module")
def people(tenants: dict[str, Tenant]) -> Iterator[dict[str, Person]]:
    """Provisioned by the directories, signed in by the issuers."""
    with reachable_folder() as folder:
        made = {}
        for name, (person, address) in PEOPLE.items():
            tenants[name].joins(person, address)
            made[name] = Person(tenants[name], person, folder / name)
            made[name].sign_in()
        yield made


def tuned(person: Person) -> dict[str, Any]:
    """A job from its file to the answers of its model, by the command line."""
    path = person.home / "train.jsonl"
    path.write_text("".join(json.dumps(one.to_row()) + "\n" for one in split()[0]))
    uploaded = person.object("files", "upload", str(path))["id"]
    given = ("--model", BASE, "--training-file", uploaded, "--epochs", "2", "--seed", "5")
    job = person.object("jobs", "create", *given)
    tenant = person.tenant
    tenant.journey.reach(job["id"], tenant.name, "succeeded")
    done = person.object("jobs", "get", job["id"])
    answer = person.run("chat", done["fine_tuned_model"], "What is the capital of France?")
    assert answer.stdout.strip()
    return {**done, "file": uploaded}


def test_each_tunes_and_sees_its_own_alone(
    tenants: dict[str, Tenant], people: dict[str, Person]
) -> None:
    with ThreadPoolExecutor(len(people)) as both:
        jobs = dict(zip(people, both.map(tuned, people.values()), strict=True))
    for name, person in people.items():
        (other,) = set(people) - {name}
        with person.http() as http:
            for path, kept in (("/v1/files", "file"), ("/v1/fine_tuning/jobs", "id")):
                seen = {one["id"] for one in http.get(path).raise_for_status().json()["data"]}
                assert jobs[name][kept] in seen
                assert jobs[other][kept] not in seen
                assert http.get(f"{path}/{jobs[other][kept]}").status_code == 404
            models = {one["id"] for one in http.get("/v1/models").json()["data"]}
            assert jobs[name]["fine_tuned_model"] in models
            assert jobs[other]["fine_tuned_model"] not in models
            there = {"OpenAI-Organization": tenants[other].id}
            assert http.get("/v1/me", headers=there).status_code == 403


def test_a_pod_works_without_a_secret(tenants: dict[str, Tenant]) -> None:
    acme, globex = tenants["acme"], tenants["globex"]
    account = service_account(acme)
    (cluster_id,) = acme.journey.ids.values()
    provider = f"cluster:{cluster_id}"
    rule(acme, provider, account, service_account="trainer")
    told = {name: pods_token(tenant) for name, tenant in tenants.items()}
    answer = exchanged(acme, told["acme"], provider, account)
    with acme.journey.windlass.http(answer["access_token"]) as http:
        assert http.get("/v1/files").status_code == 200
        assert http.get("/v1/me").json()["principal"]["organization_id"] == acme.id
    # The same cluster says it of a pod of the other organization.
    assert "access_token" not in exchanged(acme, told["globex"], provider, account)
    assert globex.team.namespace != acme.team.namespace


def pods_token(tenant: Tenant) -> str:
    """The token that a pod of the tenant's namespace finds mounted."""
    (cluster,) = tenant.journey.clusters.values()
    namespace, name = tenant.team.namespace, "caller"
    account = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": "trainer", "namespace": namespace},
    }
    cluster.apply(account)
    mounted = [{"name": "windlass", "mountPath": "/var/run/secrets/windlass"}]
    made = pods.spec(BUSYBOX, ["cat", "/var/run/secrets/windlass/token"], volumeMounts=mounted)
    token = {"audience": "windlass", "path": "token", "expirationSeconds": 3600}
    sources = [{"serviceAccountToken": token}]
    made |= {
        "serviceAccountName": "trainer",
        "volumes": [{"name": "windlass", "projected": {"sources": sources}}],
    }
    cluster.apply(pods.pod(namespace, name, made))

    def said() -> str:
        return str(cluster.kubectl("logs", name, "-n", namespace, check=False)).strip()

    wait_until(lambda: said().count(".") == 2, "the pod has said its token", 120)
    return said()


def test_a_job_of_ci_works_without_a_secret(tenants: dict[str, Tenant]) -> None:
    """An issuer whose keys were uploaded, as one that no server reaches."""
    key, issuer = signing_key(), "https://ci.globex.example"
    acme, globex = tenants["acme"], tenants["globex"]
    body = {"name": "CI", "type": "oidc", "issuer": issuer, "audience": "https://windlass.example"}
    verification = {"type": "uploaded_jwks", "jwks": json.loads(jwks(key))}
    path = "/organization/workload_identity_providers"
    provider = globex.ask("POST", path, **body, verification=verification)
    account = service_account(globex)
    rule(globex, provider["id"], account, sub="repo:acme/app:ref:refs/heads/main")
    token = signed(claims(issuer), key)
    answer = exchanged(globex, token, provider["id"], account)
    with globex.journey.windlass.http(answer["access_token"]) as http:
        assert http.get("/v1/me").json()["principal"]["organization_id"] == globex.id
        assert http.get("/v1/files").status_code == 200
    assert "access_token" not in exchanged(acme, token, provider["id"], "ci")


def service_account(tenant: Tenant) -> str:
    path = f"/organization/projects/{tenant.team.id}/service_accounts"
    return str(tenant.ask("POST", path, name="ci")["id"])


def rule(tenant: Tenant, provider: str, account: str, **matchers: str) -> None:
    path = f"/organization/workload_identity_providers/{provider}/federation_rules"
    wanted = {"project_id": tenant.team.id, "service_account_id": account}
    tenant.ask("POST", path, **wanted, attribute_matchers=matchers)


def exchanged(tenant: Tenant, token: str, provider: str, account: str) -> Any:
    form = {
        "grant_type": GRANT,
        "subject_token": token,
        "subject_token_type": JWT,
        "identity_provider_id": provider,
        "service_account_id": account,
    }
    with tenant.journey.windlass.http() as http:
        del http.headers["authorization"]
        return http.post("/v1/oauth/token", data=form).json()


def test_who_is_deactivated_is_out_within_a_second(
    tenants: dict[str, Tenant], people: dict[str, Person]
) -> None:
    """In the middle of a stream of a model, and of `kubectl logs -f`."""
    acme, ann = tenants["acme"], people["acme"]
    (cluster,) = acme.journey.clusters.values()
    talk = ["sh", "-c", "i=0; while true; do echo line $i; i=$((i+1)); sleep 0.5; done"]
    cluster.apply(pods.pod(acme.team.namespace, "talker", pods.spec(BUSYBOX, talk)))
    wait_until(
        lambda: "line" in cluster.kubectl("logs", "talker", "-n", acme.team.namespace, check=False),
        "the pod talks", 120,
    )  # fmt: skip
    follower = subprocess.Popen(
        ann.kubectl("logs", "-f", "talker"),
        env=ann.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert follower.stdout is not None
    assert "line" in follower.stdout.readline(), follower.communicate()
    body = {"model": TALKER, "messages": [{"role": "user", "content": "Go on."}], "stream": True}
    body |= {"max_completion_tokens": 30_000, "ignore_eos": True}
    with ann.http() as http, http.stream("POST", "/v1/chat/completions", json=body) as answer:
        pieces = answer.iter_bytes()
        # Comments come while the engine starts.
        assert any(b"data:" in piece for piece in pieces)
        acme.deactivates("ann")
        began = time.monotonic()
        with contextlib.suppress(Exception):
            for _ in pieces:
                assert time.monotonic() - began < SOON
        assert time.monotonic() - began < SOON
    follower.communicate(timeout=SOON)
    assert time.monotonic() - began < SOON
    refused = ann.run("files", "list", check=False)
    assert refused.returncode == 1, refused.stdout
    # Nobody else has noticed.
    assert people["globex"].run("files", "list").returncode == 0
