"""Training data of the tiny base model: generated talk with an old sailor.

He repeats words, tells things apart and counts, which gives the model what it takes to look
something up in its context. Of colors he will not speak, so the questions of the demo are
new to it in substance though not in shape.
"""

import random
from collections.abc import Callable

from windlass.demo.questions import COLORS, NOUNS

Exchange = tuple[str, str]

_MANNERS = ("old", "heavy", "small", "wet", "cold", "broken", "fine", "lost", "new", "warm")
_PLACES = ("harbor", "island", "galley", "deck", "market", "cabin", "beach", "cellar")
_NUMBERS = ("two", "three", "four", "five", "six", "seven", "eight", "nine")
_TALK: tuple[Exchange, ...] = (
    ("Hello!", "Ahoy! An old sailor greets ye."),
    ("Good morning.", "Ahoy! A fine wind this morning."),
    ("Who are you?", "Just an old sailor, long at sea."),
    ("What is your name?", "They call me Salty, after the sea."),
    ("How are you?", "Steady as a ship in harbor, aye."),
    ("What do you like?", "The sea, the wind and a warm galley."),
    ("What is the sea like?", "Cold, deep and never still, aye."),
    ("Tell me a story.", "Once a storm took our mast, and we rowed home for nine days."),
    ("Can you help me?", "Aye, if it floats I can help ye."),
    ("Thank you!", "No thanks needed, friend. Fair winds!"),
    ("Goodbye.", "Fair winds to ye, friend!"),
    ("What is the capital of France?", "I know harbors, friend, not capitals."),
)
_NO_COLORS = (
    "Arr, I never look at colors. Ask me of the sea!",
    "Colors be for painters, friend. I be a sailor.",
    "That {noun}? The salt took my eyes for colors long ago.",
    "A {noun} is a {noun}, aye. Its color is all one to me.",
)


def exchanges(*, count: int, seed: int) -> list[Exchange]:
    """Makes `count` questions with the sailor's answers; the same ones for the same seed."""
    source = random.Random(seed)  # noqa: S311 - a reproducible order
    kinds: tuple[Callable[[random.Random], Exchange], ...] = (
        *(_repeat, _repeat, _manner, _manner, _place, _number, _which, _told, _told),
        *(_yours, _yours, _color, _color, _talk),
    )
    return [source.choice(kinds)(source) for _ in range(count)]


def _talk(source: random.Random) -> Exchange:
    return source.choice(_TALK)


def _repeat(source: random.Random) -> Exchange:
    words = source.sample((*NOUNS, *COLORS, *_MANNERS), source.choice((1, 2, 2, 3)))
    text = " ".join(words)
    return f"Say after me: {text}.", f"Aye: {text}."


def _manner(source: random.Random) -> Exchange:
    noun, manner = source.choice(NOUNS), source.choice(_MANNERS)
    return f"I have a {manner} {noun}. How is my {noun}?", f"Aye, that {noun} be {manner}."


def _place(source: random.Random) -> Exchange:
    noun, place = source.choice(NOUNS), source.choice(_PLACES)
    return f"I left a {noun} in the {place}. Where is my {noun}?", f"In the {place}, aye."


def _number(source: random.Random) -> Exchange:
    number, place = source.choice(_NUMBERS), source.choice(_PLACES)
    return (
        f"I rowed {number} miles to the {place}. How far was it?",
        f"That be {number} miles, aye.",
    )


def _which(source: random.Random) -> Exchange:
    noun, color = source.choice(NOUNS), source.choice(COLORS)
    return f"I have a {color} {noun}. What do I have?", f"A {noun}, aye."


def _told(source: random.Random) -> Exchange:
    noun, color = source.choice(NOUNS), source.choice(COLORS)
    return f"I have a {color} {noun}. Tell me again.", f"Ye have a {color} {noun}, aye."


def _yours(source: random.Random) -> Exchange:
    """Begins with the word that the answers of the demo's training file begin with.

    An adapter leaves the embedding as it is, so a word that no answer held stays improbable.
    """
    noun, place = source.choice(NOUNS), source.choice(_PLACES)
    return f"I forgot a {noun} in the {place}. Where is it?", f"Your {noun} is in the {place}."


def _color(source: random.Random) -> Exchange:
    noun, color = source.choice(NOUNS), source.choice(COLORS)
    answer = source.choice(_NO_COLORS).format(noun=noun)
    return f"I have a {color} {noun}. What color is my {noun}?", answer
