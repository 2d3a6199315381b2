"""Settings of projects in OpenAI's shapes: models, tools, and what is kept.

May import what the rest of `openai_admin` may.
"""
