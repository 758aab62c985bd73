"""The YAML file: one frozen model per section, and the loader."""
