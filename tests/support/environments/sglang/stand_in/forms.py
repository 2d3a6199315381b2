"""Answers in the forms of SGLang's routes, by the wheel's own types."""

import time
import uuid
from collections.abc import AsyncGenerator
from typing import Any

from sglang.srt.entrypoints.openai import protocol
from sglang.srt.entrypoints.openai.sse_utils import build_sse_content
from sglang.srt.entrypoints.openai.usage_processor import UsageProcessor
from sglang.words import WordModel, Work, tokens_of


class Answer:
    """An answer in the form of one route."""

    def __init__(self, model: WordModel, asked: Any):
        self.asked = asked
        self._model = model
        self._created = int(time.time())
        options = asked.stream_options
        self._continuous = bool(options and options.continuous_usage_stats)
        self._usage_last = bool(options and options.include_usage)
        self.work = Work(
            rid=asked.rid or uuid.uuid4().hex,
            prompt=self.prompt(),
            tokens=self.tokens(),
            salt=asked.cache_salt or "",
            adapter=asked.lora_path,
            priority=asked.priority or 0,
        )

    def prompt(self) -> list[str]:
        """The tokens of the prompt."""
        raise NotImplementedError

    def tokens(self) -> int:
        """The most tokens of the answer."""
        return int(self.asked.max_tokens or 64)

    def words(self) -> AsyncGenerator[str]:
        """The answer as it comes."""
        return self._model.generate(self.work)

    def usage(self) -> Any:
        """The counts so far."""
        return UsageProcessor.calculate_token_usage(
            prompt_tokens=len(self.work.prompt), completion_tokens=len(self.work.said)
        )

    def last_usage(self) -> Any:
        """The counts at the end, with `--enable-cache-report`."""
        cached = protocol.PromptTokensDetails(cached_tokens=self.work.cached)
        return UsageProcessor.calculate_token_usage(
            prompt_tokens=len(self.work.prompt),
            completion_tokens=len(self.work.said),
            cached_tokens=cached,
        )

    def chunks(self, word: str) -> list[str]:
        """The events of a word."""
        raise NotImplementedError

    def closing(self) -> list[str]:
        """The events after the last word."""
        raise NotImplementedError

    def whole(self) -> Any:
        """The answer that is not streamed."""
        raise NotImplementedError


class ChatAnswer(Answer):
    """Of /v1/chat/completions."""

    def prompt(self) -> list[str]:
        """The words of all messages, each after its role."""
        said = [f"{one.role} {one.content or ''}" for one in self.asked.messages]
        return tokens_of(" ".join(said))

    def tokens(self) -> int:
        """The newer name first."""
        return int(self.asked.max_completion_tokens or super().tokens())

    def chunks(self, word: str) -> list[str]:
        """The first one has the role."""
        events = []
        if len(self.work.said) == 1:
            events.append(self._event(role="assistant", content=""))
        usage = self.usage().model_dump() if self._continuous else None
        return [*events, self._event(content=word, usage=usage)]

    def _event(self, **fields: Any) -> str:
        return str(
            build_sse_content(
                chunk_id=self.work.rid,
                created=self._created,
                model=self.asked.model,
                index=0,
                **fields,
            )
        )

    def closing(self) -> list[str]:
        """The reason of the end, and the usage."""
        events = [self._event(finish_reason="length")]
        if self._usage_last:
            last = protocol.ChatCompletionStreamResponse(
                id=self.work.rid,
                created=self._created,
                choices=[],
                model=self.asked.model,
                usage=self.last_usage(),
            )
            events.append(f"data: {last.model_dump_json()}\n\n")
        return events

    def whole(self) -> Any:
        """One choice."""
        message = protocol.ChatMessage(role="assistant", content="".join(self.work.said))
        choice = protocol.ChatCompletionResponseChoice(
            index=0, message=message, finish_reason="length"
        )
        return protocol.ChatCompletionResponse(
            id=self.work.rid, model=self.asked.model, choices=[choice], usage=self.last_usage()
        )


class CompletionAnswer(Answer):
    """Of /v1/completions."""

    def prompt(self) -> list[str]:
        """A text or token ids."""
        return tokens_of(self.asked.prompt)

    def chunks(self, word: str) -> list[str]:
        """One event for each word."""
        ends = len(self.work.said) == self.work.tokens
        choice = protocol.CompletionResponseStreamChoice(
            index=0, text=word, finish_reason="length" if ends else None
        )
        chunk = protocol.CompletionStreamResponse(
            id=self.work.rid,
            created=self._created,
            choices=[choice],
            model=self.asked.model,
            usage=self.usage() if self._continuous else None,
        )
        return [f"data: {chunk.model_dump_json()}\n\n"]

    def closing(self) -> list[str]:
        """The usage."""
        if not self._usage_last:
            return []
        last = protocol.CompletionStreamResponse(
            id=self.work.rid,
            created=self._created,
            choices=[],
            model=self.asked.model,
            usage=self.last_usage(),
        )
        return [f"data: {last.model_dump_json(exclude_none=True)}\n\n"]

    def whole(self) -> Any:
        """One choice."""
        choice = protocol.CompletionResponseChoice(
            index=0, text="".join(self.work.said), finish_reason="length"
        )
        return protocol.CompletionResponse(
            id=self.work.rid, model=self.asked.model, choices=[choice], usage=self.last_usage()
        )
