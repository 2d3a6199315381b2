"""The how-to on client certificates, run as it is printed."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.environments.certificates import self_signed
from tests.support.processes import pages
from tests.support.processes.shell import PROGRAM
from tests.support.services.front import running_front

from windlass.core.config import Settings

PAGE = "how-to/demand-client-certificates.md"
MAKING, USING = "Make certificates", "Upload and activate"


async def test_the_page_on_client_certificates_is_true(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = dict(os.environ)
    environment["PATH"] = f"{Path(PROGRAM[0]).parent}:{environment['PATH']}"
    making = pages.script(PAGE, after=MAKING, until="Have the connection ask for them")
    await asyncio.to_thread(pages.run, making, environment, tmp_path)
    certificate, _ = self_signed(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    (printed,) = pages.blocks(PAGE, "yaml")
    Settings.model_validate(yaml.safe_load(printed))
    (tmp_path / "clients.crt").write_text((tmp_path / "authority.crt").read_text())
    http = yaml.safe_load(printed.replace("/etc/windlass", str(tmp_path)))["http"]
    async with running_front(database_url, tmp_path / "data", http=http) as front:
        environment |= {
            "WINDLASS_API_KEY": front.owner_key,
            "WINDLASS_BASE_URL": front.url,
            "WINDLASS_CA": str(certificate),
        }
        using = pages.script(PAGE, after=USING)
        out = await asyncio.to_thread(pages.run, using, environment, tmp_path)
        assert "Acme clients" in out
        monkeypatch.setenv("OPENAI_BASE_URL", f"{front.url}/v1")
        monkeypatch.setenv("OPENAI_API_KEY", front.owner_key)
        monkeypatch.chdir(tmp_path)
        scope: dict[str, Any] = {}
        (block,) = pages.blocks(PAGE, "python")
        await asyncio.to_thread(exec, block, scope)
        async with front.http() as plain:
            assert (await plain.get("/v1/organization/certificates")).json()["data"] == []
