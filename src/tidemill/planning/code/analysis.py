"""Find facts in a pipeline's plan: columns used, operators, windows, where times come from.

The plans come as JSON from Spark (see `runtime.code.analyst`). Everything here is a pure function
of them, so it is tested without Spark, and its result can be cached by the code's fingerprint.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tidemill.errors import PlanError
from tidemill.jsonvalue import JsonValue
from tidemill.planning.code.chains import FoldFacts, FoldUse, PairUse
from tidemill.planning.code.lineage import (
    FOLD,
    PAIR,
    PREPARE,
    SOURCE_MARK,
    TABLE,
    Lineage,
    fold_name,
    output_of,
    pair_name,
    passed_on,
    source_of,
    time_struct,
    unwrap,
    window_size,
)
from tidemill.planning.code.margin import Margin
from tidemill.planning.code.paired import Paired, PairFault
from tidemill.planning.code.paths import (
    STATEFUL,
    Paths,
    is_native,
    is_streaming_join,
    may_share_shuffles,
)
from tidemill.planning.code.support import Supports
from tidemill.planning.code.tree import Tree, build_tree

SEVERAL = "several"
"""The origin of a column that, below a union, comes from several times."""

_AGGREGATING = {"window", "session_window", "sessions", "windows", "unique_counts", "top_n"}
_TIMES = ("timestamp", "timestamp_ntz")
_CHOOSING = ("EventTimeWatermark", "Filter", "Project")
"""Nodes whose rows have no other columns than those below it, and those that they compute."""
_RETAINING = {"join", "attribute", "deduplicate"}


@dataclass(frozen=True)
class Usage(JsonValue):
    """Something the plan uses that may or may not keep the promise of equal rows."""

    kind: str  # node, aggregate, expression
    name: str  # the class in Catalyst

    @property
    def spoken_name(self) -> str:
        """As users write it: CollectList → collect_list."""
        return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", self.name).lower()


@dataclass(frozen=True)
class PipelineFacts(JsonValue):
    """All that planning needs to know of a pipeline's code."""

    columns: dict[str, tuple[str, ...]]
    usages: tuple[Usage, ...]
    stateful: tuple[str, ...]  # the operators that keep state between slices
    schemas: dict[str, str]
    origins: dict[str, dict[str, str]]
    folds: tuple[FoldFacts, ...] = ()
    margins: dict[str, dict[str, Margin]] = field(default_factory=dict)
    unplaced: dict[str, dict[str, str]] = field(default_factory=dict)  # other times: what they are
    rounded: tuple[str, ...] = ()  # sums of floating point numbers that Spark computes
    behaviour: tuple[str, ...] = ()  # what the code does, see `planning.code.behaviour`
    spare: int = 0  # µs by which Spark's watermark is held back, for folds before native operators
    shares: bool = False  # whether its query may share shuffles, see `may_share_shuffles`
    pairs: tuple[PairUse, ...] = ()  # where rows are paired with instances
    faults: tuple[PairFault, ...] = ()  # what instances cannot be given right with

    @property
    def is_scoped(self) -> bool:
        """Whether no operator keeps anything of rows that are not paired with an instance yet."""
        paired = all(fold.pin.instance for fold in self.folds)
        return bool(self.pairs) and paired and not self.natives

    @property
    def natives(self) -> tuple[str, ...]:
        """The operators whose state Spark keeps."""
        folds = {fold.use.kind for fold in self.folds}
        return tuple(name for name in self.stateful if name not in folds)

    def time_origin(self, output: str, column: str) -> str:
        """Where an output's time comes from: event_time, window_start, window_end, unknown."""
        return self.origins[output].get(column, "unknown")

    @property
    def category(self) -> str:
        """The kind of job, after Kappa+: what it must keep in memory while it runs."""
        if not self.stateful:
            return "stateless"
        if set(self.stateful) <= _AGGREGATING:
            return "aggregating windows"
        return "retaining windows" if set(self.stateful) & _RETAINING else "unbounded"


@dataclass(frozen=True)
class OutputPlans:
    """One output of a pipeline as Spark sees it: analysed and optimised plan, schema as JSON.

    ``clocks`` are the texts in the plan that Spark replaces by the current time, such as ``now``;
    ``rounded`` are the aggregates that add floating point numbers.
    """

    name: str
    analysed: list[dict[str, Any]]
    optimised: list[dict[str, Any]]
    schema: str
    clocks: tuple[str, ...] = ()
    is_deterministic: bool = True
    rounded: tuple[str, ...] = ()


def find_facts(
    outputs: Iterable[OutputPlans],
    event_times: dict[str, str],
    folds: Mapping[str, FoldUse] | None = None,
    pairs: Mapping[str, PairUse] | None = None,
) -> PipelineFacts:
    """Read the plans of all outputs.

    ``event_times`` names each source's event-time column; ``folds`` and ``pairs`` are those that
    registered themselves while the pipeline was built.
    """
    outputs, folds, pairs = list(outputs), folds or {}, pairs or {}
    faults: dict[PairFault, None] = {}
    columns: dict[str, set[str]] = {source: {event_times[source]} for source in event_times}
    usages: dict[Usage, None] = {}
    stateful: dict[str, None] = {}
    schemas, origins = {}, {}
    margins, unplaced = dict[str, dict[str, Margin]](), dict[str, dict[str, str]]()
    supports = Supports(event_times, folds)
    chained: dict[str, FoldFacts] = {}
    read: Counter[str | None] = Counter()
    spare = 0
    optimised = [build_tree(output.optimised) for output in outputs]
    for output, whole in zip(outputs, optimised, strict=True):
        plan = build_tree(output.analysed)
        usages |= dict.fromkeys(_usages(plan))
        usages |= dict.fromkeys(_unseen(output))
        read.update(map(source_of, _leaves(plan)))
        stateful |= dict.fromkeys(_stateful(plan, folds))
        for source, used in _used_columns(whole, pairs).items():
            columns[source] |= used
        schemas[output.name] = output.schema
        lineage = Lineage(plan, event_times, folds)
        known = {
            # Windows are easiest to find in the analysed plan, CTEs are resolved in the other.
            **Lineage(whole, event_times, folds).known(),
            **lineage.known(),
        }
        origins[output.name] = {
            column: str(next(iter(found))) if len(found) == 1 else SEVERAL
            for column, found in known.items()
            if len(found) == 1 or folds
        }
        _refuse_mixed_times(plan, lineage)
        found_margins = _nearest(supports.margins(plan), supports.margins(whole))
        margins[output.name] = found_margins
        unplaced[output.name] = dict(_unplaced(output.schema, plan, lineage, found_margins))
        paired = Paired(plan, folds, pairs)
        faults |= dict.fromkeys(paired.faults)
        if folds:
            paths = Paths(plan, folds, lineage)
            spare = max(spare, paths.spare())
            for found in paths.folds(united=len(outputs) > 1):
                before = chained.get(found.use.name, found)
                reshuffle = before.pin.reshuffle or found.pin.reshuffle
                key = paired.keys.get(found.use.name, "")
                chained[found.use.name] = replace(
                    found, pin=replace(found.pin, reshuffle=reshuffle, instance=key)
                )
    chained = {name: _alone(fold, read) for name, fold in chained.items()}
    if len(outputs) == 1 and plan.kind == "Project":
        last = fold_name(plan.children[0])
        if last is not None:
            fold = chained[last]
            chained[last] = replace(fold, pin=replace(fold.pin, gives=True))
    return PipelineFacts(
        columns={source: tuple(sorted(used)) for source, used in columns.items()},
        usages=tuple(usages),
        stateful=tuple(stateful),
        schemas=schemas,
        origins=origins,
        folds=tuple(chained.values()),
        margins=margins,
        unplaced=unplaced,
        rounded=tuple(sorted({text for output in outputs for text in output.rounded})),
        spare=spare,
        shares=may_share_shuffles(optimised),
        pairs=tuple(pairs.values()),
        faults=tuple(faults),
    )


def _nearest(analysed: dict[str, Margin], optimised: dict[str, Margin]) -> dict[str, Margin]:
    """Of two proofs the one with a bound.

    In the optimised plan CTEs are resolved, constants are computed, and filters stand in the joins
    that they belong to.
    """
    bounded = {name: margin for name, margin in optimised.items() if not margin.unbounded}
    return {
        **optimised,
        **{
            name: each
            for name, each in analysed.items()
            if not each.unbounded or name not in bounded
        },
    }


def _unplaced(
    schema: str, plan: Tree, lineage: Lineage, margins: Mapping[str, Margin]
) -> Iterator[tuple[str, str]]:
    """The other columns that hold times, and what computes them, as users write it."""
    times = (
        {f["name"] for f in json.loads(schema)["fields"] if f["type"] in _TIMES} if schema else ()
    )
    for column in output_of(plan):
        name = str(column.fields.get("name"))
        if name in times and name not in margins:
            kind = lineage.computed_by(column).kind
            yield name, "" if kind == "AttributeReference" else Usage("", kind).spoken_name


def _alone(fold: FoldFacts, read: Counter[str | None]) -> FoldFacts:
    """Rows are packed in the reader only if this fold is the only reader of the source."""
    shared = read[fold.pin.reads] > 1
    return replace(fold, pin=replace(fold.pin, reads=None)) if shared else fold


def _leaves(plan: Tree) -> Iterator[Tree]:
    return (node for node in plan.walk() if node.kind.startswith("StreamingRelation"))


def _refuse_mixed_times(plan: Tree, lineage: Lineage) -> None:
    """Refuse a union's column that Spark takes as event time, but that is none on some side."""
    for node in plan.walk():
        if is_native(node):
            for child in node.children:
                for column in lineage.below(child).mixed_times():
                    raise PlanError(
                        f"the column {column!r} of a union is a time with a watermark on one side "
                        "and something else on another; Spark would drop rows of that side as late",
                        fix="use the event time on every side, or aggregate each side by itself",
                        column=column,
                    )


def _usages(plan: Tree) -> Iterator[Usage]:
    for node in plan.walk():
        if any(fold_name(node, prefix) is not None for prefix in (FOLD, PAIR, PREPARE, TABLE)):
            continue
        yield Usage("node", node.kind)
        for part in node.parts():
            if part.kind == "AggregateExpression":
                yield Usage("aggregate", part.children[0].kind)
            elif part.kind == "PythonUDF" and not part.fields.get("udfDeterministic", True):
                yield Usage("expression", "NondeterministicPythonUDF")
            elif part.kind == "PythonUDAF":
                yield Usage("aggregate", "PythonUDAF")
            elif part.kind != "AesEncrypt" or not _is_seeded(part):
                yield Usage("expression", part.kind)


def _unseen(output: OutputPlans) -> Iterator[Usage]:
    """What is used but not visible in the nodes of the analysed plan."""
    for name in output.clocks:
        yield Usage("expression", name.capitalize())
    if not output.is_deterministic:
        yield Usage("expression", "Nondeterministic")


def _is_seeded(encryption: Tree) -> bool:
    """Whether a row is encrypted the same way each time; without a vector Spark picks one."""
    mode, vector = (_uncast(encryption.children[at]) for at in (2, 4))
    return vector.fields.get("value") != "" or str(mode.fields.get("value")).upper() == "ECB"


def _uncast(expression: Tree) -> Tree:
    return _uncast(expression.children[0]) if expression.kind == "Cast" else expression


def _stateful(plan: Tree, folds: Mapping[str, FoldUse]) -> Iterator[str]:
    """The stateful operators, named as users write them."""
    for node in plan.walk():
        fold = fold_name(node)
        if fold is not None:
            yield folds[fold].kind
        elif node.kind == "Join":
            if is_streaming_join(node):
                yield "join"
        elif node.kind in STATEFUL:
            yield STATEFUL[node.kind]
        elif node.kind == "Aggregate":
            below = [part for child in node.children for part in _until_stateful(child)]
            kinds = {_window_kind(e) for part in below for e in part.expressions()}
            kinds |= {_window_kind(e) for e in node.expressions()}
            yield next((kind for kind in ("session_window", "window") if kind in kinds), "groupBy")


def _until_stateful(node: Tree) -> Iterator[Tree]:
    """The row-wise nodes below an aggregate; one of them computes the aggregate's window."""
    if node.kind == "Aggregate" or node.kind in STATEFUL or fold_name(node) is not None:
        return
    yield node
    for child in node.children:
        yield from _until_stateful(child)


def _window_kind(expression: Tree) -> str | None:
    for part in expression.walk():
        if window_size(part) is not None:
            return "window"
        bounds = time_struct(part)
        if bounds is not None and unwrap(bounds[0]).kind in ("AttributeReference", "Cast"):
            return "session_window"
        if part.kind == "SessionWindow":
            return "session_window"
    return None


def _used_columns(plan: Tree, pairs: Mapping[str, PairUse]) -> dict[str, set[str]]:
    """The columns of each source that an optimised plan really refers to."""
    mentioned = {e.expression_id for e in output_of(plan)}
    _mention(plan, mentioned, pairs)
    used: dict[str, set[str]] = {}
    for leaf in _leaves(plan):
        source = source_of(leaf)
        if source is not None:
            names = {a.fields["name"] for a in output_of(leaf) if a.expression_id in mentioned}
            names = {name for name in names if not name.startswith(SOURCE_MARK)}
            used[source] = used.get(source, set()) | names
    return used


def _mention(
    node: Tree, mentioned: set[int | None], pairs: Mapping[str, PairUse], *, passes: bool = False
) -> None:
    """Add the columns that a part of the plan refers to; ``mentioned`` has those from above it.

    A pairing takes all columns of its rows, and passes them on: what counts is which of them are
    referred to above it. ``passes`` says that a node stands right below one, and only chooses.
    """
    pairing = pair_name(node)
    if pairing is not None:
        own = {pairs[pairing].time, *pairs[pairing].on}
        mentioned |= {
            read.expression_id
            for out, read in passed_on(node)
            if out.expression_id in mentioned or out.fields["name"] in own
        }
    elif passes and node.kind in _CHOOSING:
        for expression in node.expressions():
            is_choice = node.kind == "Project" and expression.expression_id is not None
            if not is_choice or expression.expression_id in mentioned:
                mentioned |= {part.expression_id for part in expression.walk()}
    elif not node.kind.startswith("StreamingRelation"):
        mentioned |= {part.expression_id for part in node.parts()}
        mentioned |= {e.expression_id for e in output_of(node)} if passes else set()
    below = pairing is not None or (passes and node.kind in _CHOOSING)
    for child in node.children:
        _mention(child, mentioned, pairs, passes=below)
