"""The HTTP routes: requests are validated and tokenized, answers are written.

It imports every other room.
"""
