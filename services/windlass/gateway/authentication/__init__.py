"""Authentication of requests by API key, and their end once the key loses its permissions."""
