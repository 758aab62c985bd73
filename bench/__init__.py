"""``make bench``: Tidemill beside its peers, in one run, on the same data."""
