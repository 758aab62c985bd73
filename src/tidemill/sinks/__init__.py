"""Where rows go: files that the driver commits once per batch, or messages with ids."""
