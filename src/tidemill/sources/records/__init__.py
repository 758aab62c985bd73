"""Records of a log, decoded: one verdict per record, for live runs and the archive alike."""
