"""Federation: Jobs and JobSets that are applied to one cluster and run in another."""
