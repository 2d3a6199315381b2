"""The program of every other node."""
