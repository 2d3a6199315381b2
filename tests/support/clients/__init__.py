"""Clients: raw bytes, any RPC by name, and scripts that call tools.

The scripts run in environments of their own (`environments.py`), take the API's base URL, a key
and the model of `tool_model.py`, and print JSON.
"""
