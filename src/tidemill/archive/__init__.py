"""The archive that follows a log: its progress, checks, compaction and snapshot expiry."""
