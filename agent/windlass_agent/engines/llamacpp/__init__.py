"""The keeper of a `llama-server`: what that lacks of an engine's contract, in front of it.

llama.cpp's server reads GGUF, takes its adapters at its start, counts usage once, and shares
cached prompts among all. The keeper writes the files, replaces the server when an adapter comes,
counts in every chunk, and lets nobody continue another's prompt. It imports the kernel,
`windlass.inference_api`, and of the agent what engines share.
"""
