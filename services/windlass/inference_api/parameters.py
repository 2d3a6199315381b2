"""OpenAI's parameters that are known here and do nothing, or that are refused, with reasons.

docs/reference/parameters.md is made of these tables.
"""

from msgspec import Struct

WITHOUT_EFFECT: dict[str, str] = {
    "user": "A hint for OpenAI's abuse detection; usage is counted by project and key.",
    "safety_identifier": "A hint for OpenAI's abuse detection, like `user`.",
    "prompt_cache_key": "A hint for OpenAI's routing; engines find shared prefixes by themselves.",
    "prompt_cache_retention": "Engines keep prefixes while there is room.",
    "prompt_cache_options": "Engines keep prefixes while there is room.",
    "metadata": "Belongs to stored completions, and none are stored.",
    "store": "`false` is what happens: no completion is stored. `true` is refused.",
    "service_tier": "`auto` and `default` are what there is. Others are refused.",
    "modalities": '`["text"]` is what models here answer in. Others are refused.',
    "reasoning_effort": "Models here have one effort; a template may read it from "
    "`chat_template_kwargs`.",
    "verbosity": "Models here have no such control.",
}
REFUSED: dict[str, str] = {
    "moderation": "nothing here moderates requests or answers",
    "audio": "models here answer in text",
    "functions": "use tools instead",
    "function_call": "use tool_choice instead",
    "prediction": "predicted outputs are not supported",
    "web_search_options": "models here do not search the web",
    "suffix": "text cannot be inserted before a suffix",
    "use_beam_search": "beam search is not supported",
    "structured_outputs": "use response_format instead",
    "guided_json": "use response_format instead",
    "guided_regex": "regular expressions cannot constrain an answer",
    "guided_choice": "choices cannot constrain an answer",
    "guided_grammar": "grammars cannot constrain an answer",
    "chat_template": "the model's own template is used",
    "continue_final_message": "the last message cannot be continued",
}


def refusal(request: Struct) -> tuple[str, str] | None:
    """The first parameter that cannot be honoured, and why; None where all can."""
    for name, why in REFUSED.items():
        if getattr(request, name, None) not in (None, False, [], {}, ""):
            return name, why
    if getattr(request, "store", None):
        return "store", "completions are not stored"
    if getattr(request, "service_tier", None) not in (None, "auto", "default"):
        return "service_tier", "only 'auto' and 'default' are there"
    if getattr(request, "modalities", None) not in (None, ["text"]):
        return "modalities", "only ['text'] can be answered"
    return None
