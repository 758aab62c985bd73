"""The Spark session: Java, settings, Python workers."""
