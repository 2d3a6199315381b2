"""The API of the tinker SDK under /api/v1, over the tuning service.

Bodies are JSON, or the SDK's protobuf with or without zstd; it may import what the gateway's other
fronts may.
"""
