"""LiteLLM as a client: a tool called, also streamed, and a pydantic model."""

import json
import os
import sys
from typing import Literal

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import litellm
from pydantic import BaseModel, Field


class Trip(BaseModel):
    city: Literal["Paris", "Rome"]
    days: int = Field(ge=1, le=9)


base_url, key, tool, asked = sys.argv[1:]
common = {
    "model": "openai/my-model",
    "api_base": base_url,
    "api_key": key,
    "messages": [{"role": "user", "content": asked}],
    "temperature": 0,
    "max_tokens": 100,
}
said = {}
tools = {"tools": [json.loads(tool)]}
(call,) = litellm.completion(**common, **tools).choices[0].message.tool_calls
said["called"] = [call.function.name, json.loads(call.function.arguments)]
chunks = list(litellm.completion(**common, **tools, stream=True))
whole = litellm.stream_chunk_builder(chunks)
(call,) = whole.choices[0].message.tool_calls
said["streamed"] = [call.function.name, json.loads(call.function.arguments)]
content = litellm.completion(**common, response_format=Trip).choices[0].message.content
said["json_schema"] = Trip.model_validate_json(content).model_dump()
print(json.dumps(said))
