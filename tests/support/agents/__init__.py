"""Agents that a test scripts, and programs that take a runner's place."""
