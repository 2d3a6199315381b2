"""Messages as the loaded model's own chat template wants them."""

import json
from typing import Any

from windlass.inference_api.errors import unsupported
from windlass_agent.engines.builtin.tools.learning import Learner


async def renderable(messages: list[dict[str, Any]], tools: Learner) -> list[dict[str, Any]]:
    """The messages with calls as the template wants them; raises ApiError where it has no place."""
    if not any("tool_calls" in one or one["role"] == "tool" for one in messages):
        return messages
    support = await tools.support()
    for index, message in enumerate(messages):
        if "tool_calls" in message and not support.calls:
            raise unsupported(
                f"messages[{index}].tool_calls",
                "the chat template of this model does not render calls of tools.",
            )
        if message["role"] == "tool" and not support.results:
            raise unsupported(
                f"messages[{index}].role",
                "the chat template of this model does not render answers of tools.",
            )
    return [_as_text(one) for one in messages] if support.text_arguments else messages


def _as_text(message: dict[str, Any]) -> dict[str, Any]:
    if "tool_calls" not in message:
        return message
    calls = []
    for call in message["tool_calls"]:
        function = call["function"]
        arguments = json.dumps(function["arguments"])
        calls.append({**call, "function": {**function, "arguments": arguments}})
    return {**message, "tool_calls": calls}
