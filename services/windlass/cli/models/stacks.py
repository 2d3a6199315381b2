"""`windlass stacks`: serving stacks that others run."""

import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from windlass.bounds import MAX_STACK_CONCURRENCY, MAX_STACK_CONTEXT
from windlass.cli.framework.calling import Call, Yes, command, group
from windlass.cli.framework.columns import field, moment
from windlass.cli.framework.failures import USAGE, Problem
from windlass.cli.framework.listing import All, Limit, show_list
from windlass.client.transport.urls import at

app = group("Serving stacks that others run, and the adoption of their models.")
PATH = "/v1/stacks"
_COLUMNS = {
    "NAME": field("name"),
    "CLUSTER": field("cluster_id"),
    "URL": field("url"),
    "DIALECT": field("dialect"),
    "KEY": lambda item: "yes" if item.get("has_key") else "no",
    "UPDATED": moment("updated_at"),
}


@command(app, "put")
def put(
    call: Call,
    name: str,
    cluster: Annotated[
        str, typer.Option(help="The cluster whose agent reaches it: a name or an id.")
    ],
    url: Annotated[str, typer.Option(help="http://HOST:PORT or https://HOST, as the agent does.")],
    dialect: Annotated[
        Literal["openai", "vllm"],
        typer.Option(help="vllm for what has vLLM's fields, and usage in every chunk."),
    ] = "openai",
    key_stdin: Annotated[
        bool, typer.Option("--key-stdin", help="Read the stack's key from stdin; empty for none.")
    ] = False,
    stack_ca: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, help="PEM of what certifies the stack."),
    ] = None,
    max_concurrency: Annotated[
        int,
        typer.Option(
            min=0, max=MAX_STACK_CONCURRENCY, help="Requests for each model at once; 0: any number."
        ),
    ] = 0,
    context_length: Annotated[
        int, typer.Option(min=0, max=MAX_STACK_CONTEXT, help="Tokens; 0: what the stack says.")
    ] = 0,
    embeddings: Annotated[
        bool, typer.Option("--embeddings", help="It has /v1/embeddings.")
    ] = False,
    rerank: Annotated[
        bool, typer.Option("--rerank", help="It has /v1/rerank, as vLLM, KServe and Jina do.")
    ] = False,
    score: Annotated[
        bool, typer.Option("--score", help="It has /v1/score, as another Windlass does.")
    ] = False,
) -> None:
    """Describes a stack, whole; the key that it has stays unless another is given."""
    body: dict[str, Any] = {
        "cluster_id": call.client.clusters.find(cluster)["id"],
        "url": url,
        "dialect": dialect,
        "ca": _read(stack_ca) if stack_ca else "",
        "max_concurrency": max_concurrency,
        "context_length": context_length,
        "embeddings": embeddings,
        "rerank": rerank,
        "score": score,
    }
    if key_stdin:
        # The line end of `echo` belongs to no key.
        body["key"] = sys.stdin.read().removesuffix("\n")
    call.out.item(call.client.put(at(PATH, name), body))


@command(app, "list")
def list_stacks(call: Call, limit: Limit = 100, everything: All = False) -> None:
    """Lists the installation's stacks."""
    show_list(call, call.client.pages(PATH), _COLUMNS, limit=limit, everything=everything)


@command(app, "adopt")
def adopt(
    call: Call,
    stack: str,
    model: Annotated[str, typer.Argument(metavar="MODEL", help="The name that it gets.")],
    upstream: Annotated[
        str | None, typer.Option("--as", help="The stack's name of the model, if it differs.")
    ] = None,
    for_everyone: Annotated[
        bool, typer.Option("--global", help="For all projects, not only this one.")
    ] = False,
) -> None:
    """Gives a model of a stack a name; requests for it go to the stack."""
    body = {"id": model, "global": for_everyone} | ({"model": upstream} if upstream else {})
    call.out.item(call.client.post(f"{at(PATH, stack)}/models", body))


@command(app, "delete")
def delete(call: Call, name: str, yes: Yes = False) -> None:
    """Forgets a stack that no model is adopted from."""
    call.confirm(f"Forget the serving stack {name}?", yes)
    call.client.delete(at(PATH, name))
    call.out.note(f"Deleted {name}.")


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise Problem(f"{path} is no certificate in PEM.", USAGE) from error
