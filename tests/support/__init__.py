"""Clients, services, environments and data for tests, one package for each kind."""
