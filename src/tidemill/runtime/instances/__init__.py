"""The instances of a pipeline: their table read and written, what is known of each of them."""
