"""Acting: the Spark session, the run registry, leases, the loop that drives a run."""
