"""A vLLM with the plugin, and what is run in its environment."""
