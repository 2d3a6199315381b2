"""Stands before the real package in pods of tests that need no trainer."""
