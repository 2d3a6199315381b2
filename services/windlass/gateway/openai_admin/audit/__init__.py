"""The audit log in OpenAI's shapes: one table says which of our events OpenAI has a type for.

May import what `openai_admin` may.
"""
