"""Builds the programs of a cluster, starts them and ends them."""
