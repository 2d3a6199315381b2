"""Stand-in that shadows the real package in pods of tests that need no trainer."""
