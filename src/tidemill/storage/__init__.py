"""Files by their URI: read, written whole, written first, put on the disk."""
