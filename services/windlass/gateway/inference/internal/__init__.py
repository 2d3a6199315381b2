"""Requests of other services, carried out as those of clients are."""
