"""Scripts of clients that call tools, each for an environment of its own (`environments.py`).

They take the API's base URL, a key and the model of `tool_model.py`, and print JSON.
"""
