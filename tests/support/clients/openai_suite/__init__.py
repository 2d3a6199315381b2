"""OpenAI's own tests of openai-python, run against a live server of ours."""
