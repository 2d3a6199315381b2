"""The how-to on CI without a key, run as it is printed, against a real server and an issuer.

The issuer is one of the test's own: GitHub's is not reached.
"""

import asyncio
from pathlib import Path

from tests.support.fakes.oidc_issuer import LOOPBACK, oidc_issuer
from tests.support.processes import pages
from tests.support.processes.shell import PROGRAM, Shell
from tests.support.processes.windlass import make_single, running
from tests.support.waiting import until

# What the page's script has in variables.
TOLD = ("token", "provider", "rule", "audience")
PAGE = "how-to/let-ci-in-without-a-key.md"
SETTINGS = {"agent": {"enabled": False}, "oidc": {"allowed_networks": list(map(str, LOOPBACK))}}


async def test_the_page_on_workloads_is_true(tmp_path: Path) -> None:
    async with oidc_issuer() as issuer:
        with running(make_single(tmp_path / "data", SETTINGS)) as server:
            shell = Shell(server, tmp_path)
            environment = shell.environment | shell.owner
            environment["PATH"] = f"{Path(PROGRAM[0]).parent}:{environment['PATH']}"
            token = issuer.token(
                aud="https://windlass.example.com", repository="acme/app", ref="refs/heads/main"
            )
            (tmp_path / "token.jwt").write_text(token)
            here = {"https://token.actions.githubusercontent.com": issuer.url}
            tell = "".join(f'echo "${name}" > {name}\n' for name in TOLD)
            script = pages.script(PAGE, here, until="See why it is refused")
            await asyncio.to_thread(pages.run, script + tell, environment, tmp_path)
            environment |= {name: (tmp_path / name).read_text().strip() for name in TOLD}
            bearer = issuer.token(
                aud=environment["audience"], repository="acme/app", ref="refs/heads/main"
            )
            with server.http(bearer) as http:
                assert http.get("/v1/files").status_code == 200
            (program,) = pages.blocks(PAGE, "python")
            (tmp_path / "ci.py").write_text(program)
            answer = await asyncio.to_thread(pages.run, "python ci.py", environment, tmp_path)
            assert answer.strip() == "[]"
            rest = pages.script(PAGE, after="See why it is refused")
            said = await asyncio.to_thread(pages.run, rest, environment, tmp_path)
            assert "ExchangeToken" in said
            assert "AcceptBearer" in said
            for one in (environment["token"], bearer):
                with server.http(one) as http:
                    await until(lambda: http.get("/v1/files").status_code == 401, 10)
