"""Keepers of keys: tokens, a stand-in of AWS KMS, and Vault."""
