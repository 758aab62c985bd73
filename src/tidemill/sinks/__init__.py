"""Where rows go: files written on executors, committed once per batch on the driver."""
