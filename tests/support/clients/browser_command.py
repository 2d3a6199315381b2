"""A browser as the command line opens one: a program that signs a person in at their issuer."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
_PROGRAM = f"""#!{sys.executable}
import asyncio, os, sys
sys.path.insert(0, {str(ROOT)!r})
from tests.support.clients.browser import Browser

async def main():
    async with Browser("ann") as browser:
        page = await browser.open(sys.argv[1])
        if "Join an organization?" in page.text:
            page = await browser.press(page, os.environ.get("ANSWER", "Join"))
        assert page.status_code == 200, page.text

asyncio.run(main())
"""


def browser_command(folder: Path) -> str:
    """The value of BROWSER with which `windlass auth login --web` signs Ann in."""
    program = folder / "browser"
    program.write_text(_PROGRAM)
    program.chmod(0o700)
    return f"{program} %s &"
