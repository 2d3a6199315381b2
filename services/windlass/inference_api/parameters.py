"""Parameters that are known here and do nothing, or that are refused, with reasons.

docs/reference/parameters.md is made of these tables.
"""

from collections.abc import Mapping

from msgspec import Struct

WITHOUT_EFFECT: dict[str, str] = {
    "user": "A hint for OpenAI's abuse detection; usage is counted by project and key.",
    "safety_identifier": "A hint for OpenAI's abuse detection, like `user`.",
    "prompt_cache_key": "Decides only which of several engines that keep prompts answers.",
    "prompt_cache_retention": "Engines keep prefixes while there is room.",
    "prompt_cache_options": "Engines keep prefixes while there is room.",
    "metadata": "Belongs to stored completions; the grader of a feed reads it as `item.metadata`.",
    "store": "`false` is what happens: no completion is stored. `true` consents that the answer "
    "trains the engine, where the model has a feed that takes answers of the key, and is refused "
    "elsewhere.",
    "service_tier": "`flex` waits for busy engines after all others; `auto` and `default` do not. "
    "Others are refused.",
    "modalities": '`["text"]` is what models here answer in. Others are refused.',
    "reasoning_effort": "Models here have one effort; a template may read it from "
    "`chat_template_kwargs`.",
    "verbosity": "Models here have no such control.",
}
REFUSED: dict[str, str] = {
    "moderation": "moderation of requests and answers is not supported",
    "audio": "models answer in text only",
    "functions": "use tools instead",
    "function_call": "use tool_choice instead",
    "prediction": "predicted outputs are not supported",
    "web_search_options": "web search is not supported",
    "suffix": "insertion before a suffix is not supported",
    "use_beam_search": "beam search is not supported",
    "structured_outputs": "use response_format instead",
    "guided_json": "use response_format instead",
    "guided_regex": "constraining an answer by a regular expression is not supported; use "
    "response_format",
    "guided_choice": "constraining an answer to choices is not supported; use response_format",
    "guided_grammar": "constraining an answer by a grammar is not supported; use response_format",
    "chat_template": "the chat template of the model is always used",
    "continue_final_message": "continuing the last message is not supported",
}
# The same for engines of the kind `vllm`, which take two of these, and lack one that is theirs.
VLLM_REFUSED: dict[str, str] = {
    name: "use structured_outputs instead" if name.startswith("guided_") else why
    for name, why in REFUSED.items()
    if name not in ("structured_outputs", "continue_final_message")
} | {"prompt_logprobs": "log-probabilities of a prompt are not supported by this model's engine"}
# The same for engines of the kind `sglang`, whose draws no seed decides.
SGLANG_REFUSED: dict[str, str] = {
    name: why for name, why in VLLM_REFUSED.items() if name != "prompt_logprobs"
} | {"seed": "this model's engine draws without a seed"}
_TIERS = ("auto", "default", "flex")

# The same of a message.
MESSAGES_WITHOUT_EFFECT: dict[str, str] = {
    "annotations": "Citations of an answer; templates read its text.",
}
# The same of a part of one.
PARTS_WITHOUT_EFFECT: dict[str, str] = {
    "image_url.detail": "Models here read an image in one way.",
}
MESSAGES_REFUSED: dict[str, str] = {
    "audio": "models here read text",
    "function_call": "use tool_calls instead",
}


def refusal(request: Struct, refused: Mapping[str, str] = REFUSED) -> tuple[str, str] | None:
    """The first parameter that cannot be honoured, and why; None where all can."""
    for name, why in refused.items():
        value = getattr(request, name, None)
        # Zero is a value: so many log-probabilities, or so many of another thing.
        if value is not None and value is not False and value not in ([], {}, ""):
            return name, why
    if getattr(request, "store", None):
        return "store", "completions are not stored, but for a feed of the model, of chosen keys"
    if getattr(request, "service_tier", None) not in (None, *_TIERS):
        return "service_tier", "only 'auto', 'default' and 'flex' are supported"
    if getattr(request, "modalities", None) not in (None, ["text"]):
        return "modalities", "only ['text'] is supported"
    return None
