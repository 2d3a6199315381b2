"""Objects that tests create in a cluster: charts, pods, queues, runtimes, volumes."""
