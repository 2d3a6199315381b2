"""The ledger of devices: leases and seats as rows, the turns on them, and who holds them here.

Decisions are those of `windlass.tuning_api.seating`. May import what storage may, and the port.
"""
