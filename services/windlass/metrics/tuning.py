"""Tuning"""

from prometheus_client import Counter, Histogram

SWITCHES = Counter(
    "windlass_tuning_turn_phases_total",
    "Phases of turns on shared devices, by phase (drain, park, restore) and outcome.",
    ["phase", "outcome"],
)
SWITCH_SECONDS = Histogram(
    "windlass_tuning_turn_phase_seconds",
    "Time of phases of turns on shared devices.",
    ["phase"],
    buckets=(0.01, 0.05, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 120),
)
SEATS_TAKEN_BACK = Counter(
    "windlass_tuning_seats_taken_back_total",
    "Seats on devices whose server died or fell silent, and that were given to others.",
)
