"""The start of a run: what must hold before it, what is written down, what it goes on for."""
