"""Benchmarks: subjects, the programs that they start, and what measures and reports."""
