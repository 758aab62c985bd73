"""Every file that a run keeps beside its tables: the manifest, decisions, orders, notes, locks."""
