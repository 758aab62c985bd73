"""Code that a test writes beside a YAML, sent whole to the executors of the shared session."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType


@contextmanager
def sent_by_value(name: str = "pipelines") -> Iterator[None]:
    """Executors of the shared session began before the module was there, and cannot import it."""
    from pyspark.cloudpickle import register_pickle_by_value, unregister_pickle_by_value

    before, module = sys.modules.get(name), ModuleType(name)
    sys.modules[name] = module
    register_pickle_by_value(module)
    sys.modules.pop(name)
    try:
        yield
    finally:
        unregister_pickle_by_value(module)
        sys.modules.pop(name, None)
        if before is not None:
            sys.modules[name] = before
