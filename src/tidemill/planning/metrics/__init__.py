"""What a run's batches did, measured: figures per batch, summed into hours, and what they tell."""
