"""`--help` and completion answer at once: nothing heavy is loaded for them."""

import subprocess
import sys

import pytest

# Pydantic is missing here: typer itself loads it to judge the arguments of a command.
HEAVY = {"httpx", "httpx2", "openai", "rich", "grpc", "sqlalchemy", "yaml", "asyncio"}


@pytest.mark.parametrize("arguments", [["--help"], ["jobs", "create", "--help"], ["--version"]])
def test_help_loads_nothing_heavy(arguments: list[str]) -> None:
    code = (
        "import sys\n"
        "from windlass.cli import main\n"
        f"sys.argv[1:] = {arguments!r}\n"
        "try:\n    main()\n"
        "except SystemExit as end:\n    assert not end.code\n"
        f"print('LOADED', *(set(sys.modules) & {HEAVY!r}))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.splitlines()[-1] == "LOADED"
