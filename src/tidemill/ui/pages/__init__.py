"""What each page shows: facts from the project, for a template."""
