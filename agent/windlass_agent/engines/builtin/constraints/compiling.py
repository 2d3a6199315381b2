"""Compilation of grammars into constraints, off the event loop."""

import asyncio
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor

from llguidance import LLMatcher, LLParserLimits, LLTokenizer
from llguidance.hf import from_tokenizer
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from windlass_agent.engines.builtin.constraints.constraint import Constraint
from windlass_agent.engines.builtin.constraints.schemas import InvalidSchema, sentence

COMPILE_SECONDS = 10.0
# Compilations that may wait or run; a client retries.
MAX_WAITING = 32
CACHED = 32
# Of llguidance's own limits (a token's mask may cost some 20 ms); errors tell no parser's state.
_LIMITS = LLParserLimits(verbose_errors=False)


class Overloaded(Exception):
    """Too many grammars wait to be compiled."""


class Grammars:
    """Compiles grammars for one tokenizer, one at a time, and keeps the latest."""

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, *, vocabulary_size: int, eos: frozenset[int]
    ):
        self._inner = tokenizer
        self._vocabulary_size = vocabulary_size
        self._eos = sorted(eos)
        self._tokenizer: LLTokenizer | None = None
        self._compiled: OrderedDict[str, Constraint] = OrderedDict()
        self._worker = ThreadPoolExecutor(1, "grammars")
        self._waiting = 0

    @property
    def available(self) -> bool:
        """True if this tokenizer's tokens can be matched: a fast one that knows where to end."""
        return isinstance(self._inner, PreTrainedTokenizerFast) and bool(self._eos)

    async def compile(self, grammar: str) -> Constraint:
        """A constraint at its beginning.

        `grammar` is a Lark grammar as llguidance has them. Raises InvalidSchema for one that
        cannot be followed or takes too long to compile, and Overloaded.
        """
        if grammar not in self._compiled:
            if self._waiting >= MAX_WAITING:
                raise Overloaded
            self._waiting += 1
            work = asyncio.get_running_loop().run_in_executor(self._worker, self._compile, grammar)
            work.add_done_callback(self._one_less)
            try:
                self._keep(grammar, await asyncio.wait_for(asyncio.shield(work), COMPILE_SECONDS))
            except TimeoutError as error:
                raise InvalidSchema("It takes too long to compile.") from error
        self._compiled.move_to_end(grammar)
        return self._compiled[grammar].copy()

    def close(self) -> None:
        """Ends its thread."""
        self._worker.shutdown(wait=False, cancel_futures=True)

    def _compile(self, grammar: str) -> Constraint:
        if self._tokenizer is None:
            self._tokenizer = from_tokenizer(
                self._inner, n_vocab=self._vocabulary_size, eos_token=self._eos
            )
        matcher = LLMatcher(self._tokenizer, grammar, log_level=0, limits=_LIMITS)
        if matcher.is_error():
            raise InvalidSchema(sentence(matcher.get_error()))
        return Constraint(matcher)

    def _one_less(self, work: "asyncio.Future[Constraint]") -> None:
        self._waiting -= 1
        if not work.cancelled():
            # Nobody may be left to hear of it.
            work.exception()

    def _keep(self, grammar: str, constraint: Constraint) -> None:
        self._compiled[grammar] = constraint
        while len(self._compiled) > CACHED:
            self._compiled.popitem(last=False)
