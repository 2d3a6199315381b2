"""Programs and environments that are not ours, made once and started for tests."""
