"""The tokenizer and the chat template of a model's folder, without transformers."""

import json
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from windlass.datasets.chat_tokens import Messages, Span

_CONFIG_BYTES = 64 * 1024 * 1024


class FolderTokenizer:
    """Counts as the trainer of this model counts; raises ValueError for a folder that cannot."""

    def __init__(self, folder: Path) -> None:
        try:
            from tokenizers import Tokenizer
        except ImportError:
            raise ValueError(
                "Counting a model's tokens needs tokenizers and jinja2: pip install "
                "'windlass[data]'."
            ) from None
        path = folder / "tokenizer.json"
        if not path.is_file():
            raise ValueError(f"{folder} has no tokenizer.json.")
        self.name = f"the tokenizer of {folder}"
        try:
            self._tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # tokenizers raises nothing narrower
            raise ValueError(
                f"{path} cannot be read as a tokenizer; download or save it again: {error}"
            ) from None
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        config = read_document(folder / "tokenizer_config.json")
        self._tokens = _special_tokens(read_document(folder / "special_tokens_map.json") | config)
        self.end_token = self._tokens.get("eos_token", "")
        self._templates = _compiled(folder, config)

    def render(self, messages: Messages, tools: Any, add_generation_prompt: bool) -> str:
        """Returns a conversation as text; raises ValueError for one that is refused."""
        template = self._templates.get("tool_use") if tools else None
        try:
            text: str = (template or self._templates["default"]).render(
                messages=list(messages),
                tools=tools,
                documents=None,
                add_generation_prompt=add_generation_prompt,
                **self._tokens,
            )
        except Exception as error:  # a template is a program, and fails as it likes
            raise ValueError(f"The chat template refuses the example: {error}") from None
        return text

    def encode(self, text: str) -> tuple[Sequence[int], Sequence[Span]]:
        """Returns ids of tokens, and where in the text each begins and ends."""
        encoding = self._tokenizer.encode(text, add_special_tokens=False)
        return encoding.ids, encoding.offsets


def read_document(path: Path) -> dict[str, Any]:
    """Returns a JSON file of a model's folder, empty where there is none; raises ValueError."""
    if not path.is_file():
        return {}
    if path.stat().st_size > _CONFIG_BYTES:
        raise ValueError(f"{path} is too large.")
    try:
        document = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON: {error}.") from None
    if not isinstance(document, dict):
        raise ValueError(f"{path} must be a JSON object.")
    return document


def check_chat_template(text: str) -> None:
    """Raises ValueError for what is no Jinja; passes anything where jinja2 is not installed."""
    try:
        environment = _environment()
    except ImportError:
        return
    try:
        environment.from_string(text)
    except Exception as error:  # whatever is wrong with a template
        raise ValueError(f"The chat template is wrong: {error}") from None


def _special_tokens(config: dict[str, Any]) -> dict[str, str]:
    tokens = {}
    for name, value in config.items():
        text = value.get("content") if isinstance(value, dict) else value
        if name.endswith("_token") and isinstance(text, str):
            tokens[name] = text
    return tokens


def _compiled(folder: Path, config: dict[str, Any]) -> dict[str, Any]:
    """The templates by name; `default` is there always."""
    path = folder / "chat_template.jinja"
    given = path.read_text() if path.is_file() else config.get("chat_template")
    if isinstance(given, list):
        sources = {each["name"]: each["template"] for each in given if isinstance(each, dict)}
    else:
        sources = {"default": given} if given else {}
    if "default" not in sources:
        raise ValueError(f"{folder} has no chat template, so no conversation can be trained on.")
    environment = _environment()
    try:
        return {name: environment.from_string(source) for name, source in sources.items()}
    except Exception as error:  # whatever is wrong with a template
        raise ValueError(f"The chat template of {folder} is wrong: {error}") from None


def _environment() -> Any:
    """Jinja as chat templates expect it (transformers' settings), in its sandbox."""
    import jinja2
    from jinja2.ext import Extension, loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class GenerationTag(Extension):
        """`{% generation %}` marks answers; the text is the same without."""

        tags = {"generation"}

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return jinja2.nodes.Scope(body).set_lineno(line)

    def refuse(message: str) -> None:
        raise jinja2.TemplateError(message)

    def as_json(value: Any, ensure_ascii: bool = False, **options: Any) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, **options)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, loopcontrols]
    )
    environment.filters["tojson"] = as_json
    environment.globals["raise_exception"] = refuse
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)  # noqa: DTZ005
    return environment
