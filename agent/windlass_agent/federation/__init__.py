"""Federation in a cluster: as the proxy, objects that others run; as a worker, others' objects."""
