"""API keys: their rows, how callers manage them, and their revocation."""
