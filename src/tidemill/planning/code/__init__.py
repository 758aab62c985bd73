"""What the plans of a pipeline's code tell: columns, operators, windows, times, what it does."""
