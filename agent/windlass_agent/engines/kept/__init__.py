"""The part that the keepers of engines have in common (ADR 37).

`routes` steers any kept engine by vLLM's routes, `serving` runs its keeper until it is told to
end, `program` is what it keeps, and `neighbour` one in another container; `events` reads what the
program streams, `salted` has the fields that the gateway adds.
May import `engines.boundary`, `windlass.inference_api` and the kernel.
"""
