"""Usage of requests, kept on disk until the usage service has it."""
