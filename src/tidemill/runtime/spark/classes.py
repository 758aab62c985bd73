"""Share Spark's loaded classes between JVMs, because a JVM spends most of its start loading them.

The first run that reaches its end writes the classes it loaded into a file (the JVM's class-data
sharing, CDS), and later JVMs map that file. A JVM checks whether the file fits its Java, its jars
and its options, and ignores a file that does not. If no file can be written, JVMs start without.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import time
from pathlib import Path

CACHE_VARIABLE = "TIDEMILL_CACHE"
_QUIET = ("-Xshare:auto", "-Xlog:disable", "-Xlog:all=error:stderr")
"""With these a JVM prints nothing about a file that it does not use: stdout is for results."""
_FINISHED = 60
"""Seconds without a write after which a JVM's draft is taken as complete."""
_PATIENCE = 3600
"""Seconds after which another run may record, if the first one has left no complete file."""
_FORGOTTEN = 24 * 3600
_KEPT = 3
_ON_THE_PATH = ("SPARK_HOME", "SPARK_CONF_DIR", "SPARK_DIST_CLASSPATH", "HADOOP_CONF_DIR")


def cache_folder() -> Path:
    """The folder for files that may be deleted at any time.

    It is ``TIDEMILL_CACHE``, or ``tidemill`` in the user's cache folder.
    """
    named = os.environ.get(CACHE_VARIABLE)
    if named:
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "tidemill"


def jvm_options(java: str, version: int, classpath: str = "", *, record: bool = False) -> list[str]:
    """The options of a JVM that shares classes.

    ``classpath`` is what the user puts before Spark's own. ``record``: the JVM may write its
    classes, if there is no file yet. Give it only for a JVM that will really be started.
    """
    with contextlib.suppress(OSError, RuntimeError):
        archive = find_archive(java, version, classpath)
        if os.pathsep in str(archive):
            return []  # the JVM would read the path as two files
        adopt_draft(archive)
        if archive.exists() and _is_ours(archive):
            with contextlib.suppress(OSError):
                os.utime(archive)
            return [f"-XX:SharedArchiveFile={archive}", *_QUIET]
        draft = _begin_draft(archive) if record else None
        if draft is not None:
            return [f"-XX:ArchiveClassesAtExit={draft}", *_QUIET]
    return []


def adopt_draft(archive: Path, finished: float = _FINISHED) -> bool:
    """Use the file that an earlier JVM wrote when it ended; the JVM writes its header last."""
    for draft in _drafts(archive):
        with contextlib.suppress(FileNotFoundError):
            if _is_whole(draft) and _age(draft) >= finished:
                os.utime(draft)
                draft.replace(archive)
                _forget(archive.parent)
                return True
    return False


def _begin_draft(archive: Path) -> Path | None:
    """Create a new draft file for one JVM; None if another JVM is writing one."""
    archive.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    for draft in _drafts(archive):
        with contextlib.suppress(FileNotFoundError):
            if _is_whole(draft) or _age(draft) < _PATIENCE:
                return None
    _forget(archive.parent)
    draft = archive.with_name(f"{archive.stem}.{secrets.token_hex(4)}.draft")
    draft.touch(mode=0o600, exist_ok=False)
    return draft


def _drafts(archive: Path) -> list[Path]:
    return sorted(archive.parent.glob(f"{archive.stem}.*.draft"))


def _is_whole(draft: Path) -> bool:
    with draft.open("rb") as file:
        return any(file.read(4))


def _age(file: Path) -> float:
    return time.time() - file.stat().st_mtime


def _is_ours(archive: Path) -> bool:
    """Whether no other user can have written the file: classes are code that would be executed."""
    folder = archive.parent.stat()
    mine = (os.getuid(), 0)
    return archive.stat().st_uid in mine and folder.st_uid in mine and not folder.st_mode & 0o022


def _forget(folder: Path) -> None:
    """Delete the files that were not used for longest, and drafts that nobody will use any more."""
    kept = sorted(folder.glob("*.jsa"), key=lambda file: file.stat().st_mtime)
    old = [draft for draft in folder.glob("*.draft") if _age(draft) > _FORGOTTEN]
    for file in (*kept[:-_KEPT], *old):
        file.unlink(missing_ok=True)


def find_archive(java: str, version: int, classpath: str = "") -> Path:
    """The path of the file; its name has a digest of all that it depends on.

    A reinstalled Java or Spark gives another name.
    """
    import pyspark

    runtime = Path(java).resolve()
    jars = Path(pyspark.__file__).with_name("jars")
    parts = (
        runtime,
        runtime.stat().st_mtime_ns,
        jars,
        jars.stat().st_mtime_ns,
        classpath,
        *(os.environ.get(name, "") for name in ("JDK_JAVA_OPTIONS", *_ON_THE_PATH)),
    )
    named = hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()[:12]
    folder = cache_folder() / "classes"
    return folder / f"spark-{pyspark.__version__}-java-{version}-{named}.jsa"
