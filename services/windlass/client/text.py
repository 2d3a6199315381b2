"""Strangers' text, made fit for one line of a terminal."""


def printable(text: str) -> str:
    """`text` on one line, without what a terminal would obey."""
    return "".join(
        letter if letter.isprintable() else " " if letter.isspace() else "\N{REPLACEMENT CHARACTER}"
        for letter in text
    )
