"""Real servers that tests talk to."""
