"""Looking at what a backfill has made, before and after it takes the place of production's rows."""
