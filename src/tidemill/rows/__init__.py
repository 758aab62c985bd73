"""What a row of a stream is: its columns, its verdict by the on-time rule, its text."""
