"""The demo of `make demo`: a tiny base model, and questions that it gets wrong."""
