"""Owns the way to serving stacks that others run, whose models answer as engines of ours.

`forwarder` has the routes of an engine, `stack` speaks with the front of the other side, and
`translation` is what differs between the two. May import `engines.boundary` and `inference_api`.
"""
