"""The HTTP front door: OpenAI's wire in front of the services' RPCs.

Holds no state that a restart may lose, but for a spool of usage records, and
runs no SQL. Inference bodies pass through as bytes; everything else is
translated to the contract and back.

May import the contract, the kernel, the packages of HTTP bodies (`jobs_api`, `inference_api`) and
what they stand on; never a service.
"""
