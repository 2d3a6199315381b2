"""Programs of the stub."""
