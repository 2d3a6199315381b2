"""The kernel: what every service stands on, and nothing about any of them."""
