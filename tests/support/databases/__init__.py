"""Databases for tests: made once with every table, and emptied for one test after the other."""
