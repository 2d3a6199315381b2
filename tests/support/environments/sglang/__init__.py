"""SGLang as far as it runs on a machine without its GPUs."""
