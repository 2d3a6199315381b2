"""Windlass: a multi-tenant LLM platform (the control plane, the SDK and the CLI)."""
