"""The program of the first node."""
