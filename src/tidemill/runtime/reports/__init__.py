"""What a run tells people: progress, results, late rows, state."""
