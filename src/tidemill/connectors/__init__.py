"""What the system reads from and writes to: archives, live logs and sinks, one contract each."""
