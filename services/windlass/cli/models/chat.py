"""`windlass chat`: a question, or a conversation."""

import contextlib
import sys
from collections.abc import Generator
from typing import Annotated, Any

import typer

from windlass.cli.framework import completion
from windlass.cli.framework.calling import Call
from windlass.cli.framework.failures import complain, describe

Messages = list[dict[str, str]]
_KEPT = "\n\t"


def chat(
    call: Call,
    model: Annotated[str, typer.Argument(autocompletion=completion.models)],
    prompt: Annotated[
        str | None,
        typer.Argument(help="Prompt; default: standard input, or a conversation on a terminal."),
    ] = None,
    system: Annotated[str, typer.Option(help="System message.")] = "",
    temperature: Annotated[float | None, typer.Option(min=0, max=2)] = None,
    max_tokens: Annotated[
        int | None, typer.Option(min=1, help="Most tokens of each answer.")
    ] = None,
) -> None:
    """Asks a model; the answer comes as it is generated."""
    options = {"temperature": temperature, "max_completion_tokens": max_tokens}
    messages: Messages = [{"role": "system", "content": system}] if system else []
    if prompt is None and sys.stdin.isatty() and call.out.is_table:
        _converse(call, model, messages, options)
        return
    messages.append({"role": "user", "content": sys.stdin.read() if prompt is None else prompt})
    if call.out.is_table:
        _say(_answer(call, model, messages, options))
    else:
        text = "".join(_answer(call, model, messages, options))
        call.out.item({"id": model, "role": "assistant", "content": text})


def _converse(call: Call, model: str, messages: Messages, options: dict[str, Any]) -> None:
    from windlass.client.errors import WindlassError

    with contextlib.suppress(ImportError):
        import readline  # noqa: F401 - gives input() its line editing
    call.out.note("Ctrl-C stops an answer, Ctrl-D ends the conversation.")
    while True:
        try:
            asked = input("> ")
        except EOFError:
            typer.echo()
            return
        if not asked.strip():
            continue
        messages.append({"role": "user", "content": asked})
        try:
            answer = _say(_answer(call, model, messages, options))
        except WindlassError as error:
            complain(describe(error))
            messages.pop()
        else:
            messages.append({"role": "assistant", "content": answer})


def _answer(
    call: Call, model: str, messages: Messages, options: dict[str, Any]
) -> Generator[str, None, None]:
    """The pieces of an answer; a terminal shows what is waited for until the first."""
    with call.out.waiting(f"waiting for {model}") as line:
        answer = call.client.chat.stream(model, messages, waiting=line.say, **options)
        with contextlib.closing(answer):
            for piece in answer:
                line.end()
                yield piece


def _say(pieces: Generator[str, None, None]) -> str:
    """Prints an answer; Ctrl-C on a terminal ends just the answer."""
    said: list[str] = []
    terminal = sys.stdout.isatty()
    try:
        with contextlib.closing(pieces):
            for piece in pieces:
                said.append(piece)
                sys.stdout.write(_harmless(piece) if terminal else piece)
                sys.stdout.flush()
    except KeyboardInterrupt:
        if not (terminal and sys.stdin.isatty()):
            raise
    sys.stdout.write("\n")
    return "".join(said)


def _harmless(text: str) -> str:
    """Returns a text without what a terminal would obey: a model may say anything."""
    return "".join(letter for letter in text if letter.isprintable() or letter in _KEPT)
