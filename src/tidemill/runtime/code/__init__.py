"""The pipeline's code: found, analysed, and held to what it did when the run was planned."""
