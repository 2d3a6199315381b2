"""What `make demo` trains and asks: a tiny base model, and questions that it gets wrong."""
