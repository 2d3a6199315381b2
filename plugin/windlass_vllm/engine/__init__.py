"""Parts that vLLM itself loads into its processes, and the only ones that import vLLM.

It imports `weights`, `settings` and `refusal`.
"""
