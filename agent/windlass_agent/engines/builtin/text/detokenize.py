"""Text of token ids as they come: whole characters only, and never a stop sequence."""

from collections.abc import Callable, Sequence

from tokenizers.decoders import Decoder

Decode = Callable[[Sequence[int]], str]

REPLACEMENT = "\ufffd"
# An unfinished character is at most three bytes, so at most three replacements.
UNFINISHED = 3
# Tokens re-decoded as context: decoders join a token to the one before it.
CONTEXT = 6
WINDOW = 24


class Detokenizer:
    """Turns one sequence's ids into text pieces whose concatenation is its decoding.

    An unfinished character waits for its remaining bytes; one that never gets
    them (the sequence ends) is dropped.
    """

    def __init__(self, decode: Decode):
        self._decode = decode
        self._window: list[int] = []
        self._sent = 0

    def push(self, token: int) -> str:
        """The text that `token` completes."""
        self._window.append(token)
        text = self._decode(self._window)
        tail = text[-UNFINISHED:]
        settled = len(text) - len(tail) + len(tail.rstrip(REPLACEMENT))
        settled = max(settled, self._sent)
        piece = text[self._sent : settled]
        self._sent = settled
        if len(self._window) >= WINDOW:
            self._window = self._window[-CONTEXT:]
            self._sent = max(0, len(self._decode(self._window)) - (len(text) - settled))
        return piece


class StopFilter:
    """Lets text through up to the first stop sequence, however it is cut into pieces."""

    def __init__(self, stops: Sequence[str]):
        self._stops = tuple(stops)
        self._held = ""
        self.stopped = False

    def push(self, piece: str) -> str:
        """The text that can no longer be part of a stop sequence; sets `stopped` at one."""
        if not self._stops:
            return piece
        text = self._held + piece
        hits = [at for at in (text.find(stop) for stop in self._stops) if at >= 0]
        if hits:
            self.stopped, self._held = True, ""
            return text[: min(hits)]
        keep = max(overlap(text, stop) for stop in self._stops)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def flush(self) -> str:
        """The text held back, for a sequence that ends without a stop."""
        held, self._held = self._held, ""
        return held


def overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` that begins `stop`."""
    for length in range(min(len(stop) - 1, len(text)), 0, -1):
        if text.endswith(stop[:length]):
            return length
    return 0


def _byte_of() -> dict[str, int]:
    """GPT-2's printable stand-ins for bytes, inverted (openai/gpt-2, encoder.py)."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    table = {chr(byte): byte for byte in printable}
    return table | {chr(256 + index): byte for index, byte in enumerate(others)}


_BYTES = _byte_of()


def piece_bytes(piece: str, text: str, decoder: Decoder | None) -> list[int]:
    """The bytes of one vocabulary entry, exact even for a part of a character."""
    if decoder is not None and "ByteLevel" in repr(decoder) and all(c in _BYTES for c in piece):
        return [_BYTES[character] for character in piece]
    if len(piece) == len("<0x00>") and piece.startswith("<0x"):
        return [int(piece[3:5], 16)]
    return list(text.encode())
