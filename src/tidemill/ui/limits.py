"""How much one visitor may ask for, so that a page left open or gone wild harms no run."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

_ADDRESSES = 1_000


@dataclass(frozen=True)
class Limits:
    """What holds for everybody."""

    body: int = 65_536  # bytes of a form
    address: int = 8_192  # bytes of an address with its query
    fields: int = 100  # of a form
    patience: float = 10.0  # seconds for a form to arrive
    burst: int = 200  # requests at once from one address
    rate: float = 40.0  # requests per second from one address
    streams: int = 40  # event streams at the same time
    rows: int = 200  # rows of a table on a page
    runs: int = 1_000  # runs of a list


class RequestRate:
    """A bucket of requests for each address, which fills with time."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, address: str, cost: float = 1) -> bool:
        """Whether an address may make a request; a wrong token costs more than one."""
        now = time.monotonic()
        left, at = self._left.pop(address, (float(self._limits.burst), now))
        left = min(float(self._limits.burst), left + (now - at) * self._limits.rate)
        is_allowed = left >= 1
        self._left[address] = (max(0.0, left - cost) if is_allowed else left, now)
        while len(self._left) > _ADDRESSES:
            self._left.popitem(last=False)
        return is_allowed


class OpenStreams:
    """How many event streams there are now."""

    def __init__(self, limits: Limits) -> None:
        self._most, self.count = limits.streams, 0

    @property
    def is_full(self) -> bool:
        """Whether no other one may be opened."""
        return self.count >= self._most

    @contextmanager
    def one_more(self) -> Iterator[None]:
        """Count a stream as long as it is open."""
        self.count += 1
        try:
            yield
        finally:
            self.count -= 1
