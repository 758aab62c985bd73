"""The signals that tell a run to stop."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import FrameType

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Sent by Ctrl-C, by `kill` and schedulers, and by a terminal that is closed."""


@contextmanager
def on_signals(handle: Callable[[int, FrameType | None], Any], *numbers: int) -> Iterator[None]:
    """Handle signals inside the block. Main thread only. An ignored signal stays so (`nohup`)."""
    kept = {number: signal.getsignal(number) for number in numbers}
    kept = {number: found for number, found in kept.items() if found is not signal.SIG_IGN}
    for number in kept:
        signal.signal(number, handle)
    try:
        yield
    finally:
        for number, found in kept.items():
            signal.signal(number, found)
