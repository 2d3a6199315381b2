"""Replicas that an InferencePool's endpoint picker names (ADR 50), within bounds that are ours.

`choice` decides what is asked and which answers count (pure), `ext_proc` has the messages, `picker`
speaks with one picker, `chooser` puts these together, and `connection` carries requests to the
replicas that were chosen.

It may import what the tunnel may; none of it imports `targets`.
"""
