"""Jobs as processes: attempts, their runners, spares that wait for one, logs and records.

It imports the allotments and processes beside it; never `engines`.
"""
