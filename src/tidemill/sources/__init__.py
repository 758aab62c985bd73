"""Where rows come from: one Spark data source over archives (and, later, live logs)."""
