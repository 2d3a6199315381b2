"""`windlass score`: how good a reward model finds answers."""

import sys
from typing import Annotated, Any

import typer

from windlass.cli.framework import completion
from windlass.cli.framework.calling import Call
from windlass.cli.framework.columns import field

_COLUMNS = {"SCORE": field("score"), "TEXT": field("text")}


def score(
    call: Call,
    model: Annotated[str, typer.Argument(autocompletion=completion.models)],
    texts: Annotated[
        list[str] | None,
        typer.Argument(metavar="TEXT", help="Texts to score; default: standard input as one text."),
    ] = None,
    prompt: Annotated[str, typer.Option(help="User message that each TEXT answers.")] = "",
) -> None:
    """Scores texts, or answers to a prompt, by a reward model; the best one comes first."""
    given: list[Any] = texts or [sys.stdin.read()]
    asked = [_conversation(prompt, text) for text in given] if prompt else given
    with call.out.waiting(f"waiting for {model}, whose engine may have to start"):
        scores = call.client.score(model, asked)
    rows = [
        {"id": str(index), "score": round(score, 6), "text": text}
        for index, (score, text) in enumerate(zip(scores, given, strict=True))
    ]
    call.out.items(sorted(rows, key=lambda row: -row["score"]), _COLUMNS)


def _conversation(prompt: str, answer: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": prompt}, {"role": "assistant", "content": answer}]
