"""Text to ids and back, as the model's own tokenizer has it."""

import asyncio
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

from transformers import PreTrainedTokenizerBase

from windlass.inference_api.errors import ApiError
from windlass_agent.engines.builtin.text.detokenize import piece_bytes
from windlass_agent.engines.builtin.text.templates.renderer import (
    Renderer,
    TemplateRefusal,
    TemplateTooCostly,
)

T = TypeVar("T")


class TextPair(NamedTuple):
    """Two texts as one input; `types` says of each token whose it is, where a model asks that."""

    ids: list[int]
    types: list[int]


class ModelTokenizer:
    """A tokenizer that may be asked from the event loop and from the scheduler."""

    def __init__(self, inner: PreTrainedTokenizerBase):
        self.inner = inner
        backend = getattr(inner, "backend_tokenizer", None)
        self._decoder = getattr(backend, "decoder", None)
        if backend is not None:
            # Encoding would otherwise switch them off while another thread decodes.
            backend.no_truncation()
            backend.no_padding()
        # One thread: a long prompt must not hold up the streams, nor meet another one.
        self._renderer = Renderer()
        self._worker = ThreadPoolExecutor(1, "tokenizer")

    def decode(self, ids: Sequence[int]) -> str:
        """Text without special tokens."""
        text = self.inner.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return str(text)

    def token(self, token: int) -> str:
        """Returns one vocabulary entry as text, special ones too."""
        return str(self.inner.decode([token], clean_up_tokenization_spaces=False))

    def token_bytes(self, token: int) -> list[int]:
        """Returns one vocabulary entry as bytes."""
        piece = self.inner.convert_ids_to_tokens(token) or ""
        return piece_bytes(piece, self.token(token), self._decoder)

    async def encode(self, text: str, *, special: bool = True) -> list[int]:
        """Ids of `text`, with the tokens that begin or end a text when `special`."""
        return await self._run(lambda: self._encode(text, special))

    async def pair(self, first: str, second: str) -> "TextPair":
        """Ids of two texts as one input, in the form that the model was trained on."""
        return await self._run(lambda: self._pair(first, second))

    async def ended(self, text: str) -> list[int]:
        """Ids of a text that is complete: it ends with the end token, once."""
        end = self.inner.eos_token or ""
        return await self.encode(text if text.endswith(end) else text + end)

    async def chat(
        self,
        messages: list[dict[str, Any]],
        *,
        tools: list[dict[str, Any]] | None = None,
        options: dict[str, Any] | None = None,
        generation_prompt: bool = True,
    ) -> list[int]:
        """Ids of a rendered conversation; raises ApiError without a template or when it refuses."""
        text = await self.render(messages, tools, generation_prompt, options)
        return await self.encode(text, special=False)

    async def render(
        self,
        messages: list[dict[str, Any]],
        tools: list[dict[str, Any]] | None,
        generation_prompt: bool,
        options: dict[str, Any] | None = None,
    ) -> str:
        """The text of a conversation; raises ApiError without a template or when it refuses."""
        if not self.inner.chat_template:
            raise ApiError(
                "This model has no chat template. Use /v1/completions, or import it with one.",
                param="messages",
                code="chat_template_missing",
            )

        template = self.inner.get_chat_template(tools=tools)
        variables = {
            **self.inner.special_tokens_map,
            **(options or {}),
            "messages": messages,
            "tools": tools,
            "documents": None,
            "add_generation_prompt": generation_prompt,
        }
        try:
            return await self._renderer.render(template, variables)
        except TemplateRefusal as error:
            message = f"The model's chat template refuses these messages: {error}"
            raise ApiError(message, param="messages", code="invalid_value") from error
        except TemplateTooCostly as error:
            message = f"The model's chat template cannot be rendered. {error}"
            raise ApiError(message, param="messages", code="chat_template_too_costly") from error

    def special_tokens(self) -> dict[str, int]:
        """The tokens that are no text, each with its id."""
        added = self.inner.added_tokens_decoder
        return {str(token.content): number for number, token in added.items() if token.special}

    def decode_with(self, shown: Collection[int]) -> Callable[[Sequence[int]], str]:
        """A `decode` that leaves the special tokens in `shown` in the text."""
        hidden = frozenset(self.inner.all_special_ids) - frozenset(shown)
        if len(hidden) == len(self.inner.all_special_ids):
            return self.decode

        def decode(ids: Sequence[int]) -> str:
            kept = [one for one in ids if one not in hidden]
            return str(self.inner.decode(kept, clean_up_tokenization_spaces=False))

        return decode

    async def close(self) -> None:
        """Ends its thread and its process."""
        await self._renderer.close()
        self._worker.shutdown(wait=False, cancel_futures=True)

    def _pair(self, first: str, second: str) -> "TextPair":
        found = self.inner(first, second)
        return TextPair(found["input_ids"], found.get("token_type_ids") or [])

    def _encode(self, text: str, special: bool) -> list[int]:
        ids: list[int] = self.inner.encode(text, add_special_tokens=special)
        return ids

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._worker, work)
