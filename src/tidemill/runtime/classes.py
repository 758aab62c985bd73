"""Spark's classes, kept between runs: much of a JVM's start is loading them from jars.

The first run that comes to its end leaves the classes it loaded in a file (the JVM's class-data
sharing), and the JVMs after it map that file. A JVM looks whether the file fits its Java, its jars
and its options, and goes without one that does not. Where no file can be kept, none is.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from pathlib import Path

CACHE_VARIABLE = "TIDEMILL_CACHE"
_QUIET = "-Xshare:auto -Xlog:disable -Xlog:all=error:stderr"
"""A JVM says nothing of a file that it does not take, least of all on stdout."""
_SETTLED = 60
"""Seconds without a write after which a draft is whole, or its writer is gone."""
_FORGOTTEN = 24 * 3600
_KEPT = 3


def cache_folder() -> Path:
    """What may be thrown away at any time: ``TIDEMILL_CACHE``, or the user's cache folder."""
    named = os.environ.get(CACHE_VARIABLE)
    if named:
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "tidemill"


def jvm_options(java: str, version: int, *, record: bool) -> list[str]:
    """The options of a JVM that shares classes; ``record``: it may leave them, if none are kept."""
    with contextlib.suppress(OSError, RuntimeError):
        archive = find_archive(java, version)
        adopt_draft(archive)
        if archive.exists():
            os.utime(archive)
            return [f"-XX:SharedArchiveFile={archive}", *_QUIET.split()]
        if record:
            draft = _begin_draft(archive)
            if draft is not None:
                return [f"-XX:ArchiveClassesAtExit={draft}", *_QUIET.split()]
    return []


def adopt_draft(archive: Path, settled: float = _SETTLED) -> bool:
    """Take what an earlier JVM left on its way out; its header is written last."""
    draft = _draft(archive)
    with contextlib.suppress(FileNotFoundError):
        age = time.time() - draft.stat().st_mtime
        with draft.open("rb") as file:
            is_whole = any(file.read(4))
        if is_whole and age >= settled:
            draft.replace(archive)
            _forget(archive.parent)
            return True
        if not is_whole and age > _FORGOTTEN:
            draft.unlink()
    return False


def _begin_draft(archive: Path) -> Path | None:
    """One JVM at a time writes it; None if another one does."""
    draft = _draft(archive)
    archive.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        draft.touch(mode=0o600, exist_ok=False)
    except FileExistsError:
        return None
    return draft


def _draft(archive: Path) -> Path:
    return archive.with_suffix(".draft")


def _forget(folder: Path) -> None:
    """Those of other Javas and Sparks, longest unused first."""
    kept = sorted(folder.glob("*.jsa"), key=lambda file: file.stat().st_mtime)
    for file in kept[:-_KEPT]:
        file.unlink(missing_ok=True)


def find_archive(java: str, version: int) -> Path:
    """Its name tells apart what it depends on, a reinstalled Java or Spark among it."""
    import pyspark

    runtime = Path(java).resolve()
    jars = Path(pyspark.__file__).with_name("jars")
    parts = (
        runtime,
        runtime.stat().st_mtime_ns,
        jars,
        jars.stat().st_mtime_ns,
        os.environ.get("JDK_JAVA_OPTIONS", ""),
    )
    named = hashlib.sha256(" ".join(map(str, parts)).encode()).hexdigest()[:12]
    folder = cache_folder() / "classes"
    return folder / f"spark-{pyspark.__version__}-java-{version}-{named}.jsa"
