"""Breakages of the protocol, made by hand: for each one a test must fail.

``old`` stands exactly once in its file; it is replaced by ``new`` in a copy of the sources. A
breakage is found if one of its tests fails.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Breakage:
    """One rule of the protocol, broken."""

    rule: str
    file: str
    old: str
    new: str
    test: str

    @property
    def is_light(self) -> bool:
        """Whether its test starts neither Spark nor Kafka."""
        return not self.test.startswith(("tests/laws", "tests/live", "tests/replay"))


BREAKAGES = (
    Breakage(
        "a row at exactly the lateness is on time",
        "sources/verdict.py",
        "pc.greater_equal(happened, oldest)",
        "pc.greater(happened, oldest)",
        "tests/sources/test_verdict.py",
    ),
    Breakage(
        "a row at exactly the skew is on time",
        "sources/verdict.py",
        "pc.less_equal(happened, newest)",
        "pc.less(happened, newest)",
        "tests/sources/test_verdict.py",
    ),
    Breakage(
        "a row behind a live slice's start is late by the clock",
        "sources/verdict.py",
        "inside = pc.and_(inside, pc.greater_equal(at, floor))",
        "pass",
        "tests/sources/test_reading.py",
    ),
    Breakage(
        "the mark lies 1 ms before the frontier",
        "sources/slicing.py",
        "mark=high + pin.skew - MILLISECOND if index == 0 else None",
        "mark=high + pin.skew if index == 0 else None",
        "tests/sources/test_slicing.py",
    ),
    Breakage(
        "one task of a slice carries the mark",
        "sources/slicing.py",
        "mark=high + pin.skew - MILLISECOND if index == 0 else None",
        "mark=high + pin.skew - MILLISECOND if index == 1 else None",
        "tests/sources/test_slicing.py",
    ),
    Breakage(
        "a slice is decided once: the first decision holds",
        "sources/ledger.py",
        "os.link(draft, self.path(frontier))",
        "os.replace(draft, self.path(frontier)); draft.touch()",
        "tests/sources/test_route.py",
    ),
    Breakage(
        "a missing decision stops the run",
        "sources/ledger.py",
        "            if following is None:\n                raise RunError(",
        "            if following is None:\n                return found\n            if False:\n"
        "                raise RunError(",
        "tests/sources/test_route.py",
    ),
    Breakage(
        "an open transaction holds the frontier at its first hidden row",
        "planning/live.py",
        "found = min(found, view.hidden)",
        "pass",
        "tests/planning/test_live.py tests/sources/test_liveslices.py",
    ),
    Breakage(
        "the frontier stays behind the clock by the slack",
        "planning/live.py",
        "found = min(clock - slack, start + widest)",
        "found = min(clock, start + widest)",
        "tests/planning/test_live.py tests/sources/test_liveslices.py",
    ),
    Breakage(
        "a slice ends before the first row beyond its budget",
        "planning/live.py",
        "max(view.full, start + MILLISECOND)",
        "max(view.full + MILLISECOND, start + MILLISECOND)",
        "tests/planning/test_live.py tests/sources/test_liveslices.py",
    ),
    Breakage(
        "a fold's watermark is the frontier less the lateness",
        "folds/watermark.py",
        "frontier - self.lateness[source]\n",
        "frontier\n",
        "tests/folds/test_watermark.py",
    ),
    Breakage(
        "the slowest source holds a fold's watermark",
        "folds/watermark.py",
        "return min(open_ends) - self.behind if open_ends else FOREVER_MICROS",
        "return max(open_ends) - self.behind if open_ends else FOREVER_MICROS",
        "tests/folds/test_watermark.py",
    ),
    Breakage(
        "a damaged state file stops the run",
        "folds/state.py",
        "if _checksum(table) != expected:",
        "if False:",
        "tests/folds/test_state.py",
    ),
    Breakage(
        "a missing side file stops the commit",
        "sources/sidefile.py",
        "except (FileNotFoundError, pa.ArrowInvalid) as error:",
        "except FileNotFoundError:\n            continue\n        except pa.ArrowInvalid as error:",
        "tests/sources/test_sidefile.py",
    ),
    Breakage(
        "late rows and dead rows are told apart",
        "sources/verdict.py",
        'return reason not in (None, "late", "future", CLOCK)',
        'return reason not in (None, "late", "future")',
        "tests/sources/test_verdict.py tests/sources/test_reading.py",
    ),
    Breakage(
        "a stream used twice: a slice belongs to the batch of its first use",
        "runtime/offsets.py",
        "now.furthest(source)",
        "now.slowest()[source]",
        "tests/runtime/test_offsets.py",
    ),
    Breakage(
        "a second driver of a run is refused",
        "runtime/lease.py",
        "fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)\n            return True",
        "return True",
        "tests/runtime/test_lease.py",
    ),
    Breakage(
        "a new driver waits for the old JVM",
        "runtime/lease.py",
        "        _await_old_jvm(folder, run)\n",
        "",
        "tests/runtime/test_lease.py",
    ),
    Breakage(
        "pause, cancel and stop release nothing",
        "sources/control.py",
        "if control.paused or control.cancelled or control.stopping:",
        "if control.paused or control.cancelled:",
        "tests/sources/test_control.py",
    ),
    Breakage(
        "the input reaches the lateness beyond the range's end",
        "planning/ranges.py",
        "output.end + margins.look_ahead + lateness",
        "output.end + margins.look_ahead",
        "tests/planning/test_ranges.py",
    ),
    Breakage(
        "the input begins the skew before the range",
        "planning/ranges.py",
        "output.start - margins.warm_up - skew",
        "output.start - margins.warm_up",
        "tests/planning/test_ranges.py",
    ),
    Breakage(
        "files are read whole at the edge of a slice",
        "sources/tasks.py",
        "extent.first < end and extent.last >= start",
        "extent.first < end and extent.last > start",
        "tests/sources/test_tasks.py tests/sources/test_iceberg.py",
    ),
    Breakage(
        "a batch that is in the table is not committed again",
        "sinks/stamp.py",
        "    if found.is_same(ours):\n        return True\n",
        "    if found.is_same(ours):\n        return False\n",
        "tests/sinks/test_commit.py",
    ),
    Breakage(
        "a repeat is the same batch: frontiers and positions are equal",
        "sinks/stamp.py",
        "    if found.is_same(ours):\n        return True\n",
        "    if True:\n        return True\n",
        "tests/sinks/test_commit.py",
    ),
    Breakage(
        "a driver whose successor has committed stops",
        "sinks/stamp.py",
        "        if found == at_start:\n",
        "        if True:\n",
        "tests/sinks/test_commit.py",
    ),
    Breakage(
        "positions are part of a batch's identity",
        "sinks/stamp.py",
        "        if self.positions != other.positions:\n            return False\n",
        "",
        "tests/sinks/test_commit.py tests/runtime/test_standing.py",
    ),
    Breakage(
        "a conflict that landed is taken for what it is",
        "archive/transaction.py",
        "            if not self._has_landed():\n                raise\n",
        "            raise\n",
        "tests/sinks/test_commit.py",
    ),
    Breakage(
        "after a conflict only files are deleted that no snapshot names",
        "archive/transaction.py",
        "            written -= {each.manifest_path for each in snapshot.manifests(now.io)}\n",
        "",
        "tests/archive/test_transaction.py tests/sinks/test_commit.py",
    ),
    Breakage(
        "files of a commit that landed are not removed as a repeat's waste",
        "sinks/commit.py",
        "    if holds(table.metadata.properties, stamp.run, files):\n        return True\n",
        "",
        "tests/sinks/test_commit.py",
    ),
    Breakage(
        "the stamp is in the transaction of the files",
        "sinks/commit.py",
        "    transaction.set_properties(properties)\n",
        "",
        "tests/sinks/test_commit.py",
    ),
    Breakage(
        "an archive's batch begins where the table ends: no hole",
        "sinks/commit.py",
        "        if begin == found.next:\n",
        "        if begin >= found.next:\n",
        "tests/sinks/test_commit.py",
    ),
    Breakage(
        "two archive runs do not write one log twice",
        "sinks/commit.py",
        "        if begin == found.next:\n",
        "        if begin <= found.next:\n",
        "tests/sinks/test_commit.py",
    ),
    Breakage(
        "files are committed under the partitioning they were written for",
        "sinks/layout.py",
        'return now.model_copy(update={"default_spec_id": specs.pop()})',
        "return now",
        "tests/sinks/test_layout.py",
    ),
    Breakage(
        "a tagged snapshot is not expired",
        "sinks/tidy.py",
        "    kept |= {ref.snapshot_id for ref in metadata.refs.values()}\n",
        "",
        "tests/sinks/test_tidy.py",
    ),
    Breakage(
        "files of expired snapshots stay as long as readers may need them",
        "sinks/tidy.py",
        "if _minute(page) < last)",
        "if True)",
        "tests/sinks/test_tidy.py",
    ),
    Breakage(
        "a checkpoint that is older than its table is refused",
        "runtime/standing.py",
        "        if wrong is not None:\n",
        "        if False:\n",
        "tests/runtime/test_standing.py",
    ),
    Breakage(
        "a checkpoint that is older than the registry is refused",
        "runtime/standing.py",
        "        if known is None and number > _last(folder):\n",
        "        if False:\n",
        "tests/runtime/test_standing.py",
    ),
    Breakage(
        "a lost run's newest batch is given only where its stamp is",
        "runtime/recovery.py",
        "whole if name in has_it else before for name in names",
        "whole for name in names",
        "tests/runtime/test_recovery.py tests/planning/test_cuts.py",
    ),
    Breakage(
        "late rows before a lost run's end are not given again",
        "runtime/recovery.py",
        "        if before is None or before.furthest(source) < end:\n",
        "        if False:\n",
        "tests/runtime/test_recovery.py",
    ),
    Breakage(
        "a run goes on only with code that does what it did",
        "runtime/sameness.py",
        "difference = first_difference(manifest.behaviour, facts.behaviour)",
        "difference = None",
        "tests/replay/test_changed_code.py",
    ),
    Breakage(
        "a kept analysis counts only if what the code looked at is the same",
        "runtime/cache.py",
        "        if not looked.is_unchanged():\n",
        "        if False:\n",
        "tests/runtime/test_cache.py",
    ),
    Breakage(
        "a variable that the code read is compared",
        "runtime/lookout.py",
        "_secret(self.salt, os.environ.get(name)) == digest",
        "digest is not name",
        "tests/runtime/test_lookout.py",
    ),
    Breakage(
        "what a function closes over counts",
        "runtime/carried.py",
        "*map(_content, value.__closure__ or ())",
        "*()",
        "tests/runtime/test_carried.py",
    ),
    Breakage(
        "the functions that a function calls count",
        "runtime/carried.py",
        "            if name in found\n",
        "            if name not in found\n",
        "tests/runtime/test_carried.py",
    ),
    Breakage(
        "the order of a set does not count",
        "runtime/carried.py",
        "sorted(map(self.token, value))",
        "map(self.token, value)",
        "tests/runtime/test_carried.py",
    ),
    Breakage(
        "Spark's words for a node count",
        "planning/behaviour.py",
        "node.kind if chance or clock else spoken",
        "node.kind",
        "tests/planning/test_behaviour.py",
    ),
    Breakage(
        "a typed literal of the clock is found",
        "planning/clocks.py",
        r"(['\"])\s*({'|'.join(SPECIAL_TIMES)})",
        r"(['\"])\s*({'|'.join(SPECIAL_TIMES[:1])})",
        "tests/runtime/test_clocks.py::test_typed_literals_are_found_in_a_text",
    ),
)
