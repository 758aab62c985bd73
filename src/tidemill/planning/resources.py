"""How much runs at once, as far as the YAML tells; fixed for the life of a run."""

import re

from tidemill.config.spark import SparkConfig
from tidemill.errors import ConfigError


def parallelism(config: SparkConfig, cores: int) -> int:
    """How many tasks run at once, as far as the YAML tells; ``cores`` are the machine's."""
    given = _number(config, "spark.default.parallelism") or _number(config, "spark.cores.max")
    if given:
        return given
    local = re.fullmatch(r"local\[(\d+|\*)(?:,\d+)?\]", config.master)
    if local is None:
        return 1 if config.master == "local" else 8
    return cores if local[1] == "*" else int(local[1])


def shuffles(config: SparkConfig, cores: int) -> int:
    """How many partitions state and shuffles have; fixed for the life of a run."""
    return _number(config, "spark.sql.shuffle.partitions") or parallelism(config, cores)


def _number(config: SparkConfig, key: str) -> int:
    """A setting that is a positive number, or 0 if it is not given."""
    given = config.conf.get(key, 0)
    if not str(given).isdecimal():
        raise ConfigError(f"spark.conf.{key} is {given!r}, not a number", fix="write for example 8")
    return int(given)
