"""The root of the command tree."""

import typer

from windlass.cli import serve

app = typer.Typer(
    name="windlass",
    help="Fine-tune, serve and account for models across clusters.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command("serve")(serve.serve)
app.add_typer(serve.config_app, name="config")


def main() -> None:
    """Entry point of the `windlass` script."""
    app()
