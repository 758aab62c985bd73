"""Put files of a local disk on the disk for good: a power failure takes what is only in memory."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path


def sync_files(paths: Iterable[Path]) -> None:
    """Put files that are written already, and their names, on the disk. Missing ones are left."""
    folders = set()
    for path in paths:
        if sync(path):
            folders.add(path.parent)
    for folder in folders:
        sync(folder)


def sync(path: Path) -> bool:
    """Put one file, or the names in one folder, on the disk; False if it is missing."""
    try:
        number = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        os.fsync(number)
    finally:
        os.close(number)
    return True
