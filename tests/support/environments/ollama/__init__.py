"""Ollama, built of its Go module."""
