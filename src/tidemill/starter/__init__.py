"""The first minutes with Tidemill: a project to start from, and a check-up."""
