"""Makes the tree of commands when it is imported, once for all forks of the importing process.

To make it of the commands' signatures takes as long as whatever most commands do.
"""

import functools

import typer.main

from windlass.cli.main import app

typer.main.get_command = functools.cache(typer.main.get_command)
typer.main.get_command(app)
