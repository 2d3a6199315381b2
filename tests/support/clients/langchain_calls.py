"""LangChain: a tool bound, a tool's answer, and structured output in its two ways."""

import json
import sys
from typing import Literal

from langchain_core.messages import HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, Field


class Trip(BaseModel):
    """A trip to a city."""

    city: Literal["Paris", "Rome"]
    days: int = Field(ge=1, le=9)


base_url, key, tool, asked = sys.argv[1:]
model = ChatOpenAI(
    model="my-model", base_url=base_url, api_key=key, temperature=0, max_tokens=100, max_retries=0
)
said = {}

bound = model.bind_tools([json.loads(tool)])
conversation = [HumanMessage(asked)]
answer = bound.invoke(conversation)
(call,) = answer.tool_calls
said["called"] = [call["name"], call["args"]]
result = ToolMessage("sunny", tool_call_id=call["id"])
said["told"] = bound.invoke([*conversation, answer, result]).content
whole = None
for chunk in bound.stream(conversation):
    whole = chunk if whole is None else whole + chunk
said["streamed"] = [whole.tool_calls[0]["name"], whole.tool_calls[0]["args"]]
required = model.bind_tools([Trip], tool_choice="any", strict=True, parallel_tool_calls=False)
said["required"] = Trip.model_validate(required.invoke(asked).tool_calls[0]["args"]).model_dump()
for method in ("json_schema", "function_calling"):
    trip = model.with_structured_output(Trip, method=method).invoke(asked)
    said[method] = trip.model_dump()
print(json.dumps(said))
