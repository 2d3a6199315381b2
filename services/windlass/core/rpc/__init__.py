"""Calls between processes: the boundary, who calls, stubs, tokens, streams that are followed."""
