"""``tidemill init --archive``: a project over a user's own data, from what the data shows."""
