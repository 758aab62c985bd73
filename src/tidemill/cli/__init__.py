"""The command line: a face of `tidemill.project`, no logic of its own."""
