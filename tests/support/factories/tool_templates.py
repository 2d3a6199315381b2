"""Chat templates of model families that call tools, reduced to what tools need."""

import asyncio

from tests.support.factories.toy_model import TEMPLATE, make_tokenizer

from windlass_agent.engines.builtin.text.tokenizer import ModelTokenizer
from windlass_agent.engines.builtin.tools.format import ToolSupport
from windlass_agent.engines.builtin.tools.learning import learn

# Llama 3.1 and later: no trigger, one call to a message.
_LLAMA = """\
{%- macro head(role) -%}{{- '<|start|>' + role + '<|end|>\\n\\n' }}{%- endmacro -%}
{%- if tools %}{{- head('system') }}{%- for t in tools %}{{- t | tojson(indent=4) }}{%- endfor %}\
{{- '<|im_end|>' }}{%- endif %}
{%- for m in messages %}
    {%- if 'tool_calls' in m %}
        {%- if m.tool_calls | length != 1 %}{{- raise_exception('One call at once!') }}{%- endif %}
        {%- set call = m.tool_calls[0].function %}
        {{- head('assistant') + '{"name": "' + call.name + '", ' }}
        {{- '"parameters": ' }}
        {{- call.arguments | tojson }}
        {{- '}<|im_end|>' }}
    {%- else %}
        {{- head('ipython' if m.role == 'tool' else m.role) + m.content + '<|im_end|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- head('assistant') }}{%- endif %}"""

# Mistral's first tokenizers: a list, with ids of nine characters.
_MISTRAL = """\
{%- for m in messages %}
    {%- if m.role == 'user' %}
        {%- if tools and loop.first %}{{- '[AVAILABLE_TOOLS]' + (tools | tojson) }}{%- endif %}
        {{- '[INST] ' + m.content + '[/INST]' }}
    {%- elif m.tool_calls is defined %}
        {{- '[TOOL_CALLS] [' }}
        {%- for call in m.tool_calls %}
            {%- if call.id | length != 9 %}{{- raise_exception('Ids have 9 letters!') }}{%- endif %}
            {{- (call.function | tojson)[:-1] + ', "id": "' + call.id + '"}' }}
            {{- ', ' if not loop.last else ']<|im_end|>' }}
        {%- endfor %}
    {%- elif m.role == 'tool' %}
        {{- '[TOOL_RESULTS] {"content": ' + m.content + ', "call_id": "' + m.tool_call_id + '"}' }}
    {%- else %}
        {{- ' ' + m.content + '<|im_end|>' }}
    {%- endif %}
{%- endfor %}"""

# Mistral's later ones, and other formats with the name outside of JSON.
_NAMED = """\
{%- for m in messages %}
    {%- if m.role == 'user' and tools and loop.first %}{{- tools | tojson }}{%- endif %}
    {{- '[' + m.role + ']' if m.role != 'assistant' }}{{- m.content }}
    {%- for call in m.tool_calls or () %}
        {{- '[TOOL_CALLS]' + call.function.name + '[ARGS]' + (call.function.arguments | tojson) }}
    {%- endfor %}
    {{- '<|im_end|>' if m.role == 'assistant' }}
{%- endfor %}"""

TEMPLATES = {"hermes": TEMPLATE, "llama": _LLAMA, "mistral": _MISTRAL, "named": _NAMED}


def support(family: str) -> ToolSupport:
    """Returns the engine's findings about the template of a family, or about a template."""
    return asyncio.run(_support(TEMPLATES.get(family, family)))


async def _support(template: str) -> ToolSupport:
    tokenizer = ModelTokenizer(make_tokenizer(template))
    try:
        return await learn(tokenizer.render, ends=("<|im_end|>",))
    finally:
        await tokenizer.close()
