"""For the first minutes: `init` writes a small project, `doctor` checks the machine."""
