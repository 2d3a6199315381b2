"""A real Keycloak: the distribution that Maven serves, built once; a started one keeps nothing."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from tests.support.environments import made_once, required
from tests.support.processes.windlass import free_port
from tests.support.waiting import wait_until

VERSION = "26.5.6"
REALM = "acme"
CLIENT_ID, CLIENT_SECRET = "windlass", "of-a+test%25&1"
GROUPS_CLAIM = "groups"
_ARTIFACT = f"org.keycloak:keycloak-quarkus-dist:{VERSION}:zip"
_BUILD = ("build", "--db=dev-mem")
_START = (
    *("start", "--optimized", "--cache=local", "--http-enabled=true"),
    *("--http-host=127.0.0.1", "--hostname-strict=false"),
)
_ADMIN, _PASSWORD = "admin", "p4ss-of-a-test-alone"
_MAKE_SECONDS, _START_SECONDS = 1200, 600
_KEYS = "org.keycloak.keys.KeyProvider"
_USES_PKCE = "pkce.code.challenge.method"
_LOGOUT_URL, _LOGOUT_OF_SESSION = "backchannel.logout.url", "backchannel.logout.session.required"


def environment() -> Path:
    """The folder of the distribution; the test is skipped where it cannot be had."""
    try:
        made = made_once.once(
            "keycloak", "\n".join((_ARTIFACT, *_BUILD)), _make, home=made_once.CACHE
        )
    except (subprocess.SubprocessError, OSError) as error:
        said = str(getattr(error, "output", None) or error)
        required.lacking(f"Keycloak cannot be had by Maven and Java 17: {said[:1000]}")
    return _unpacked(made)


def _make(folder: Path) -> None:
    print(f"fetching and building {_ARTIFACT} in {folder}", file=sys.stderr, flush=True)
    folder.mkdir(parents=True)
    goal = ("mvn", "--quiet", "--batch-mode", "dependency:unpack", f"-Dartifact={_ARTIFACT}")
    for command in ((*goal, f"-DoutputDirectory={folder}"), _command(_unpacked(folder), *_BUILD)):
        subprocess.run(
            command,
            cwd=folder,
            check=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_MAKE_SECONDS,
        )


def _unpacked(folder: Path) -> Path:
    return folder / f"keycloak-{VERSION}"


def _command(distribution: Path, *words: str) -> tuple[str, ...]:
    return ("bash", str(distribution / "bin" / "kc.sh"), *words)


@dataclass
class Keycloak:
    """A running Keycloak, as its administrator works with the realm of Windlass's people."""

    url: str

    @property
    def issuer(self) -> str:
        return f"{self.url}/realms/{REALM}"

    @contextlib.contextmanager
    def _administered(self, realm: str = f"/{REALM}") -> Iterator[httpx.Client]:
        """Yields a client of the realm's administration; every answer has to be a success."""
        form = {"grant_type": "password", "client_id": "admin-cli"}
        form |= {"username": _ADMIN, "password": _PASSWORD}
        with httpx.Client(timeout=60) as http:
            http.event_hooks = {"response": [_require_success]}
            path = "/realms/master/protocol/openid-connect/token"
            token = http.post(self.url + path, data=form).json()["access_token"]
            http.headers["authorization"] = f"Bearer {token}"
            http.base_url = httpx.URL(f"{self.url}/admin/realms{realm}")
            yield http

    def make_realm(self, callback: str, people: Mapping[str, Sequence[str]]) -> None:
        """Makes the realm with Windlass as a client, and people by their addresses and groups.

        The address of each is their user name and password too.
        """
        groups = sorted({group for one in people.values() for group in one})
        realm = {
            "realm": REALM,
            "enabled": True,
            "clients": [_client(callback)],
            "groups": [{"name": group} for group in groups],
            "users": [_user(address, of) for address, of in people.items()],
        }
        with self._administered(realm="") as http:
            http.post("", json=realm)

    def end_sessions_at(self, url: str) -> None:
        """Names the address of Windlass's back-channel logout."""
        with self._administered() as http:
            (client,) = http.get("/clients", params={"clientId": CLIENT_ID}).json()
            client["attributes"] |= {_LOGOUT_URL: url, _LOGOUT_OF_SESSION: "true"}
            http.put(f"/clients/{client['id']}", json=client)

    def rotate_keys(self) -> set[str]:
        """Signs by a new key, and forgets those before; returns the ids of what is published."""
        new = {"providerId": "rsa-generated", "providerType": _KEYS, "name": "new"}
        with self._administered() as http:
            before = http.get("/components", params={"type": _KEYS}).json()
            http.post("/components", json={**new, "config": {"priority": ["200"]}})
            for one in before:
                if one["providerId"] == new["providerId"]:
                    http.delete(f"/components/{one['id']}")
        return self.key_ids()

    def key_ids(self) -> set[str]:
        """The ids of the keys that signatures are verified by."""
        keys = httpx.get(f"{self.issuer}/protocol/openid-connect/certs").json()["keys"]
        return {key["kid"] for key in keys if key["use"] == "sig"}

    def take_from_group(self, person: str, group: str) -> None:
        with self._administered() as http:
            (found,) = http.get("/groups", params={"search": group, "exact": True}).json()
            http.delete(f"/users/{_id_of(http, person)}/groups/{found['id']}")

    def sign_out(self, person: str) -> None:
        """Ends all sessions of a person."""
        with self._administered() as http:
            http.post(f"/users/{_id_of(http, person)}/logout")


def _require_success(answer: httpx.Response) -> None:
    if not answer.is_success:
        answer.read()
        raise AssertionError(f"{answer.request.url}: {answer.status_code} {answer.text}")


def _id_of(http: httpx.Client, person: str) -> str:
    (found,) = http.get("/users", params={"username": person, "exact": True}).json()
    return str(found["id"])


def _client(callback: str) -> dict[str, Any]:
    """A confidential client that has to use PKCE and is told groups, by their paths."""
    config = {"claim.name": GROUPS_CLAIM, "full.path": "true", "id.token.claim": "true"}
    mapper = {
        "name": GROUPS_CLAIM,
        "protocol": "openid-connect",
        "protocolMapper": "oidc-group-membership-mapper",
        "config": config,
    }
    return {
        "clientId": CLIENT_ID,
        "secret": CLIENT_SECRET,
        "redirectUris": [callback],
        "attributes": {_USES_PKCE: "S256"},
        "protocolMappers": [mapper],
    }


def _user(address: str, groups: Sequence[str]) -> dict[str, Any]:
    return {
        "username": address,
        "enabled": True,
        "email": address,
        "emailVerified": True,
        # Who lacks these is asked for them.
        "firstName": "A",
        "lastName": "Person",
        "credentials": [{"type": "password", "value": address}],
        "groups": [f"/{group}" for group in groups],
    }


@contextlib.contextmanager
def running_keycloak(folder: Path) -> Iterator[Keycloak]:
    """Runs a Keycloak with nothing but its administrator until the end of the block."""
    port, log = free_port(), folder / "keycloak.log"
    settings = {
        "KC_BOOTSTRAP_ADMIN_USERNAME": _ADMIN,
        "KC_BOOTSTRAP_ADMIN_PASSWORD": _PASSWORD,
        "JAVA_OPTS_KC_HEAP": "-Xms64m -Xmx384m",
        # Two thirds of the processor time of a start; nothing runs long enough to be worth more.
        "JAVA_OPTS_APPEND": "-XX:TieredStopAtLevel=1",
    }
    with log.open("wb") as output:
        process = subprocess.Popen(
            _command(environment(), *_START, f"--http-port={port}"),
            env=os.environ | settings,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    keycloak = Keycloak(f"http://127.0.0.1:{port}")

    def ready() -> bool:
        assert process.poll() is None, log.read_text(errors="replace")[-3000:]
        with contextlib.suppress(httpx.TransportError):
            return httpx.get(f"{keycloak.url}/realms/master", timeout=10).is_success
        return False

    try:
        wait_until(ready, f"Keycloak, see {log}", _START_SECONDS)
        yield keycloak
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
