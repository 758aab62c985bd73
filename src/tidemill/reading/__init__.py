"""The Spark data source: which slice comes next, its tasks, the rows that reach Spark."""
