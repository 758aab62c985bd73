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
        "rows/verdict.py",
        "pc.greater_equal(happened, oldest)",
        "pc.greater(happened, oldest)",
        "tests/rows/test_verdict.py",
    ),
    Breakage(
        "a row at exactly the skew is on time",
        "rows/verdict.py",
        "pc.less_equal(happened, newest)",
        "pc.less(happened, newest)",
        "tests/rows/test_verdict.py",
    ),
    Breakage(
        "a row behind a live slice's start is late by the clock",
        "rows/verdict.py",
        "inside = pc.and_(inside, pc.greater_equal(at, floor))",
        "pass",
        "tests/reading/test_task.py",
    ),
    Breakage(
        "the mark lies 1 ms before the frontier",
        "reading/slicing.py",
        "mark=high + pin.times.skew - MILLISECOND if index == 0 else None",
        "mark=high + pin.times.skew if index == 0 else None",
        "tests/reading/test_slicing.py",
    ),
    Breakage(
        "one task of a slice carries the mark",
        "reading/slicing.py",
        "mark=high + pin.times.skew - MILLISECOND if index == 0 else None",
        "mark=high + pin.times.skew - MILLISECOND if index == 1 else None",
        "tests/reading/test_slicing.py",
    ),
    Breakage(
        "a slice is decided once: the first decision holds",
        "storage/location.py",
        "os.link(draft, path)",
        "os.replace(draft, path)",
        "tests/reading/test_route.py tests/storage/test_location.py",
    ),
    Breakage(
        "a missing decision stops the run",
        "runfolder/decided_slices.py",
        "            if following is None:\n                raise RunError(",
        "            if following is None:\n                return found\n            if False:\n"
        "                raise RunError(",
        "tests/reading/test_route.py",
    ),
    Breakage(
        "an open transaction holds the frontier at its first hidden row",
        "planning/live.py",
        "found = min(found, view.hidden)",
        "pass",
        "tests/planning/test_live.py tests/connectors/logs/test_kafka_slices.py",
    ),
    Breakage(
        "the frontier stays behind the clock by the slack",
        "planning/live.py",
        "found = min(clock - slack, start + widest)",
        "found = min(clock, start + widest)",
        "tests/planning/test_live.py tests/connectors/logs/test_kafka_slices.py",
    ),
    Breakage(
        "a slice ends before the first row beyond its budget",
        "planning/live.py",
        "max(view.full, start + MILLISECOND)",
        "max(view.full + MILLISECOND, start + MILLISECOND)",
        "tests/planning/test_live.py tests/connectors/logs/test_kafka_slices.py",
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
        "reading/sidefile.py",
        "except (FileNotFoundError, pa.ArrowInvalid) as error:",
        "except FileNotFoundError:\n            continue\n        except pa.ArrowInvalid as error:",
        "tests/reading/test_sidefile.py",
    ),
    Breakage(
        "late rows and dead rows are told apart",
        "rows/verdict.py",
        'return reason not in (None, "late", "future", CLOCK)',
        'return reason not in (None, "late", "future")',
        "tests/rows/test_verdict.py tests/reading/test_task.py",
    ),
    Breakage(
        "a stream used twice: a slice belongs to the batch of its first use",
        "runtime/driving/committer.py",
        "now.furthest(source)",
        "now.slowest()[source]",
        "tests/runtime/driving/test_committer.py",
    ),
    Breakage(
        "a second driver of a run is refused",
        "runfolder/lease.py",
        "fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)\n            return True",
        "return True",
        "tests/runfolder/test_lease.py",
    ),
    Breakage(
        "a new driver waits for the old JVM",
        "runfolder/lease.py",
        "        _await_old_jvm(folder, run)\n",
        "",
        "tests/runfolder/test_lease.py",
    ),
    Breakage(
        "pause, cancel and stop release nothing",
        "runfolder/control.py",
        "if control.paused or control.cancelled or control.stopping:",
        "if control.paused or control.cancelled:",
        "tests/runfolder/test_control.py",
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
        "connectors/tasks.py",
        "extent.first < end and extent.last >= start",
        "extent.first < end and extent.last > start",
        "tests/connectors/test_tasks.py tests/connectors/archives/test_iceberg.py",
    ),
    Breakage(
        "a batch that is in the table is not committed again",
        "connectors/sinks/stamp.py",
        "    if found.is_same(ours):\n        return True\n",
        "    if found.is_same(ours):\n        return False\n",
        "tests/connectors/sinks/iceberg/test_commit.py",
    ),
    Breakage(
        "a repeat is the same batch: frontiers and positions are equal",
        "connectors/sinks/stamp.py",
        "    if found.is_same(ours):\n        return True\n",
        "    if True:\n        return True\n",
        "tests/connectors/sinks/iceberg/test_commit.py",
    ),
    Breakage(
        "a driver whose successor has committed stops",
        "connectors/sinks/stamp.py",
        "        if found == at_start:\n",
        "        if True:\n",
        "tests/connectors/sinks/iceberg/test_commit.py",
    ),
    Breakage(
        "positions are part of a batch's identity",
        "connectors/sinks/stamp.py",
        "        if self.positions != other.positions:\n            return False\n",
        "",
        "tests/connectors/sinks/iceberg/test_commit.py tests/runtime/starts/test_standing.py",
    ),
    Breakage(
        "a conflict that landed is taken for what it is",
        "iceberg/transaction.py",
        "            if not self._has_landed():\n                raise\n",
        "            raise\n",
        "tests/connectors/sinks/iceberg/test_commit.py",
    ),
    Breakage(
        "after a conflict only files are deleted that no snapshot names",
        "iceberg/transaction.py",
        "            written -= {each.manifest_path for each in snapshot.manifests(now.io)}\n",
        "",
        "tests/iceberg/test_transaction.py tests/connectors/sinks/iceberg/test_commit.py",
    ),
    Breakage(
        "files of a commit that landed are not removed as a repeat's waste",
        "connectors/sinks/iceberg/commit.py",
        "    if holds(table.metadata.properties, stamp.run, files):\n        return True\n",
        "",
        "tests/connectors/sinks/iceberg/test_commit.py",
    ),
    Breakage(
        "the stamp is in the transaction of the files",
        "connectors/sinks/iceberg/commit.py",
        "    transaction.set_properties(properties)\n",
        "",
        "tests/connectors/sinks/iceberg/test_commit.py",
    ),
    Breakage(
        "an archive's batch begins where the table ends: no hole",
        "connectors/sinks/iceberg/commit.py",
        "        if begin == found.next:\n",
        "        if begin >= found.next:\n",
        "tests/connectors/sinks/iceberg/test_commit.py",
    ),
    Breakage(
        "two archive runs do not write one log twice",
        "connectors/sinks/iceberg/commit.py",
        "        if begin == found.next:\n",
        "        if begin <= found.next:\n",
        "tests/connectors/sinks/iceberg/test_commit.py",
    ),
    Breakage(
        "files are committed under the partitioning they were written for",
        "connectors/sinks/iceberg/layout.py",
        'return now.model_copy(update={"default_spec_id": specs.pop()})',
        "return now",
        "tests/connectors/sinks/iceberg/test_layout.py",
    ),
    Breakage(
        "a tagged snapshot is not expired",
        "connectors/sinks/iceberg/snapshot_expiry.py",
        "    kept |= {ref.snapshot_id for ref in metadata.refs.values()}\n",
        "",
        "tests/connectors/sinks/iceberg/test_snapshot_expiry.py",
    ),
    Breakage(
        "files of expired snapshots stay as long as readers may need them",
        "connectors/sinks/iceberg/snapshot_expiry.py",
        "if _minute(page) < last)",
        "if True)",
        "tests/connectors/sinks/iceberg/test_snapshot_expiry.py",
    ),
    Breakage(
        "the state before a publish is tagged in the same commit",
        "connectors/sinks/iceberg/production.py",
        "            stage_tags(transaction, tags)\n",
        "",
        "tests/connectors/sinks/iceberg/test_production.py",
    ),
    Breakage(
        "a range that changed since it was compared is not replaced",
        "connectors/sinks/iceberg/production.py",
        "        if not same:\n",
        "        if False:\n",
        "tests/connectors/sinks/iceberg/test_production.py",
    ),
    Breakage(
        "a row without a time lies in no range",
        "connectors/sinks/iceberg/range_files.py",
        "pc.fill_null(inside, False)",
        "pc.fill_null(inside, True)",
        "tests/connectors/sinks/iceberg/test_production.py",
    ),
    Breakage(
        "files of a shadow that production names are not deleted with it",
        "connectors/sinks/iceberg/dropping.py",
        "for path in rows if path not in lent}",
        "for path in rows}",
        "tests/connectors/sinks/iceberg/test_production.py",
    ),
    Breakage(
        "files with other ids of columns are not referred to",
        "connectors/sinks/iceberg/columns.py",
        "return reads_alike and not foreign and same",
        "return same",
        "tests/connectors/sinks/iceberg/test_production.py",
    ),
    Breakage(
        "a live run must be beyond the range",
        "review/writers.py",
        "        if not has_passed(watermark, self.span[1], needed):\n",
        "        if False:\n",
        "tests/review/test_publishing.py",
    ),
    Breakage(
        "a checkpoint that is older than its table is refused",
        "runtime/starts/standing.py",
        "        if wrong is not None:\n",
        "        if False:\n",
        "tests/runtime/starts/test_standing.py",
    ),
    Breakage(
        "a checkpoint that is older than the registry is refused",
        "runtime/starts/standing.py",
        "        if known is None and number > last_batch(folder.checkpoint):\n",
        "        if False:\n",
        "tests/runtime/starts/test_standing.py",
    ),
    Breakage(
        "a lost run's newest batch is given only where its stamp is",
        "runtime/starts/recovery.py",
        "whole if name in has_it else before for name in names",
        "whole for name in names",
        "tests/runtime/starts/test_recovery.py tests/planning/test_cuts.py",
    ),
    Breakage(
        "late rows before a lost run's end are not given again",
        "runtime/starts/recovery.py",
        "        if before is None or before.furthest(source) < end:\n",
        "        if False:\n",
        "tests/runtime/starts/test_recovery.py",
    ),
    Breakage(
        "a run goes on only with code that does what it did",
        "runtime/code/sameness.py",
        "difference = first_difference(manifest.code.behaviour, facts.behaviour)",
        "difference = None",
        "tests/replay/test_changed_code.py",
    ),
    Breakage(
        "a run keeps the values of its parameters, whatever the YAML says",
        "runtime/code/sameness.py",
        "pinned=manifest.code.params",
        "pinned=None",
        "tests/replay/test_params.py",
    ),
    Breakage(
        "an analysis is known only for the same values of parameters",
        "runtime/plans/planner.py",
        "conf, params, tables)",
        "conf, tables)",
        "tests/runtime/code/test_binding.py",
    ),
    Breakage(
        "a run goes on with no other values of parameters than its own",
        "runtime/code/binding.py",
        "is_same = read_value(value, kind, may_be_null=True) == pin.read()",
        "is_same = bool(read_value(value, kind, may_be_null=True))",
        "tests/runtime/code/test_binding.py",
    ),
    Breakage(
        "native operators do not share the rows of a shuffle",
        "planning/code/paths.py",
        "return len(outputs) == 1 and len(meetings) == 1",
        "return True",
        "tests/replay/test_outputs.py",
    ),
    Breakage(
        "a kept analysis counts only if what the code looked at is the same",
        "runtime/code/cache.py",
        "return known if known.looked.is_unchanged() else None",
        "return known",
        "tests/runtime/code/test_cache.py",
    ),
    Breakage(
        "a variable that the code read is compared",
        "runtime/code/lookout.py",
        "_secret(self.salt, os.environ.get(name)) == digest",
        "digest is not name",
        "tests/runtime/code/test_lookout.py",
    ),
    Breakage(
        "what a function closes over counts",
        "runtime/code/carried.py",
        "*map(_content, value.__closure__ or ())",
        "*()",
        "tests/runtime/code/test_carried.py",
    ),
    Breakage(
        "the functions that a function calls count",
        "runtime/code/carried.py",
        "            if name in found\n",
        "            if name not in found\n",
        "tests/runtime/code/test_carried.py",
    ),
    Breakage(
        "the order of a set does not count",
        "runtime/code/carried.py",
        "sorted(map(self.token, value))",
        "map(self.token, value)",
        "tests/runtime/code/test_carried.py",
    ),
    Breakage(
        "Spark's words for a node count",
        "planning/code/behaviour.py",
        "node.kind if chance or clock else spoken",
        "node.kind",
        "tests/planning/code/test_behaviour.py",
    ),
    Breakage(
        "a typed literal of the clock is found",
        "planning/code/clocks.py",
        r"(['\"])\s*({'|'.join(SPECIAL_TIMES)})",
        r"(['\"])\s*({'|'.join(SPECIAL_TIMES[:1])})",
        "tests/runtime/code/test_clocks.py::test_typed_literals_are_found_in_a_text",
    ),
)
