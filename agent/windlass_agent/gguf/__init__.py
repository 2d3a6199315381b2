"""GGUF, llama.cpp's format: files of models and of adapters, written from safetensors.

It imports nothing else of the agent; a program of its own writes the files, since it needs torch.
"""
