"""Requests of every RPC that tenants may call, by what they name."""
