"""Expectations of a run as checks, facts about its rows as verdicts, and why rows are late."""
