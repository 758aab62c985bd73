"""What a person sees: plans, results, runs, as text."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tidemill.cli.expectview import show_expectations
from tidemill.cli.instanceview import show_plan as show_instances
from tidemill.cli.options import redact
from tidemill.cli.tableview import show_tables
from tidemill.connectors.archives.opening import archive_of
from tidemill.connectors.logs.contract import home_of
from tidemill.planning.code.params import show_params
from tidemill.types import (
    MILLISECOND,
    SECOND,
    from_micros,
    show_duration,
    show_instant,
    show_seconds,
)

if TYPE_CHECKING:
    from tidemill.planning.manifest import SourcePin
    from tidemill.planning.plan import RunPlan
    from tidemill.project import RunResult
    from tidemill.runfolder.lag import Lag
    from tidemill.runtime.reports.results import Phase

_SHOWN = 12
_WIDE = 160
STATES = {"finished": "green", "failed": "red", "running": "cyan", "stopped": "yellow"}


def console() -> Console:
    """Standard output; in a pipe or a file nothing is cut to a terminal's width."""
    found = Console(highlight=False, soft_wrap=True)
    return found if found.is_terminal else Console(highlight=False, soft_wrap=True, width=_WIDE)


def new_table(*columns: str, right: Collection[str] = ()) -> Table:
    """A table without lines; the columns in ``right`` are aligned to the right."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in columns:
        table.add_column(name, justify="right" if name in right else "left")
    return table


def show_plan(plan: RunPlan, every: bool) -> None:
    """A plan as tables."""
    out = console()
    request = plan.request
    first, last = from_micros(plan.boundaries[0]), from_micros(plan.boundaries[-1])
    out.print(f"[bold]{request.pipeline}[/]  output {plan.output}  [dim]dry run[/]")
    if plan.params:
        told = show_params({name: pin.read() for name, pin in plan.params.items()})
        out.print(f"params {escape(redact(told))}")
    out.print(
        f"input  {show_instant(first)} to {show_instant(last)}  "
        f"[dim]warm-up {show_duration(plan.margins.warm_up)}, look-ahead "
        f"{show_duration(plan.margins.look_ahead)}: {plan.margins.reason}[/]"
    )
    for need in plan.margins.needs:
        out.print(f"  [dim]{need.operator}: {escape(need.because)}[/]")
    out.print(
        f"job    {plan.facts.category}"
        + (f" ({', '.join(plan.facts.stateful)})" if plan.facts.stateful else "")
        + f"  [dim]about {show_bytes(plan.memory)} of memory[/]"
    )
    _show_functions(out, plan)
    for name, pin in plan.pins.items():
        _show_source(out, name, pin, plan.lateness[name])
    show_tables(out, plan)
    if plan.instances is not None:
        show_instances(out, plan.instances)
    out.print(_slices(plan, every))
    out.print("[yellow]risks[/]" if plan.risks else "[green]no risks found[/]")
    for risk in plan.risks:
        out.print(f"  • {escape(redact(risk))}")
    if plan.expect:
        out.print(f"expects  {escape(redact('; '.join(map(str, plan.expect))))}")
    for advice in plan.advice:
        out.print(f"[cyan]advice[/] {escape(advice)}")


def _show_functions(out: Console, plan: RunPlan) -> None:
    """The user's functions around the pipeline's code, then an empty line."""
    if plan.interceptors:
        out.print(f"intercepted by {escape(', '.join(plan.interceptors))}")
    for key, function in plan.callbacks.items():
        out.print(f"{key} {escape(function)}")
    out.print()


def _show_source(out: Console, name: str, pin: SourcePin, late: str) -> None:
    snapshot = archive_of(pin.archive).describe(pin.archive) if pin.archive else "no history"
    where = escape(f" where {redact(pin.rows.where)}") if pin.rows.where else ""
    out.print(f"[bold]{name}[/]  {pin.location}{where}  [dim]{snapshot}[/]")
    out.print(f"  columns  {', '.join(pin.rows.columns)}")
    out.print(f"  late     {late}")
    if pin.live is not None and pin.phase is not None:
        at, log = show_instant(from_micros(pin.phase.seam)), home_of(pin.live)
        places = log.show_positions(pin.phase.positions)
        out.print(f"  seam     {at}, then {escape(log.show(pin.live))}  [dim]{places}[/]")
    out.print()


def _slices(plan: RunPlan, every: bool) -> Table:
    slices, sources = plan.slices, list(plan.pins)
    table = new_table("slice", "ingest time from", "to", right=["slice"])
    for source, pin in plan.pins.items():
        table.add_column(
            f"{source} {'rows, at most' if pin.rows.where else 'rows'}", justify="right"
        )
        table.add_column("bytes", justify="right")
    shown = slices if every or len(slices) <= _SHOWN + 1 else slices[:_SHOWN]
    for index, piece in enumerate(shown, 1):
        shares = [piece.shares[source] for source in sources]
        cells = [part for each in shares for part in (f"{each.rows:,}", show_bytes(each.bytes))]
        table.add_row(str(index), show_instant(piece.start), show_instant(piece.end), *cells)
    rest = len(slices) - len(shown)
    if rest:
        table.add_row("…", f"{rest} more, --all lists them", "")
    totals = ["", "1 slice" if len(slices) == 1 else f"{len(slices)} slices", "total"]
    for source in sources:
        totals.append(f"{sum(p.shares[source].rows for p in slices):,}")
        totals.append(show_bytes(sum(p.shares[source].bytes for p in slices)))
    table.add_section()
    table.add_row(*totals, style="bold")
    return table


def show_bytes(size: int) -> str:
    """A size as people say it."""
    value = float(size)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def show_result(result: RunResult, out: Console | None = None) -> None:
    """How a run ended or stands, and what to do with it."""
    out = out or console()
    totals = result.totals
    is_well = not (result.broken or result.warnings)
    color = STATES.get(result.state, "white") if is_well else "red"
    state = str(result.state)
    state += " already, nothing was done" if result.already_finished else ""
    state += "" if is_well else ", NOT as expected"
    named = "" if result.name is None else f" ({result.name})"
    head = f"[{color}]{state}[/]  run {result.run}{named}  {result.pipeline}"
    out.print("  ".join(part for part in (head, how_far(result), pace(result)) if part))
    if result.waiting is not None:
        out.print(f"  [yellow]waits: {escape(redact(result.waiting.sentence))}[/]")
    if result.params:
        out.print(f"  params  {escape(redact(show_params(result.params)))}")
    if result.phase is not None:
        _show_phase(out, result.phase, result)
    out.print(
        f"  in {totals.read:,} = on time {totals.on_time:,} + late {totals.late:,} + dead "
        f"{totals.dead:,}"
    )
    out.print(f"  out {totals.out:,}, outside the range {totals.suppressed:,}")
    if totals.failed:
        out.print(
            f"  [yellow]the code failed at {totals.failed:,} rows on time[/]: "
            f"tidemill dead show {result.run}"
        )
    for name, table in result.outputs.items():
        out.print(f"  {name:<7} {table}")
    for name, rows, table in (
        ("late", totals.late, result.late),
        ("dead", totals.dead + totals.failed, result.dead),
    ):
        if rows and table:  # the table is made with its first row
            out.print(f"  {name:<7} {table}")
    show_expectations(out, result)
    if result.error:
        out.print(f"  [red]{escape(redact(result.error))}[/]")
    if result.state in ("stopped", "failed") and result.slices:  # a run without a folder has none
        out.print(f"  next: {_next(result)}")


def _next(result: RunResult) -> str:
    """What goes on with a run that does not."""
    if result.state == "stopped" and result.upgrading:
        return (
            "an upgrade stopped it and goes on with a new run: 'tidemill status "
            f"{result.name or result.pipeline}' shows which one"
        )
    return f"tidemill resume {result.run}"


def how_far(result: RunResult) -> str:
    """The slices of a backfill that are done; of a live run the batches."""
    if result.phase is not None and result.phase.name == "live":
        return f"live, {result.totals.batches:,} batches"
    return f"slice {result.slices_done}/{result.slices}" if result.slices else ""


def pace(result: RunResult) -> str:
    """How long it took so far, how fast it is, and how long it will take."""
    parts = [show_seconds(result.seconds)]
    if result.rate is not None:
        parts.append(f"{result.rate:,.0f} rows/s")
    if result.left is not None:
        of = "" if result.phase is None else " of history"
        parts.append(f"about {show_seconds(result.left)}{of} left")
    return ", ".join(parts)


def _show_phase(out: Console, phase: Phase, result: RunResult) -> None:
    """Where a run without an end is: its watermark, its seam, and how far behind each log.

    Nobody looks at the logs while a run is stopped or paused: its lags are as old as its last look.
    """
    is_reading = result.state in ("planned", "running", "pausing")
    if result.totals.watermark:
        moment = show_instant(from_micros(result.totals.watermark * MILLISECOND))
        out.print(f"  watermark {moment}")
    for source, seam in phase.seams.items():
        out.print(f"  {source:<7} leaves history at {show_instant(from_micros(seam))}")
    for source, lag in phase.lags.items():
        history = phase.history(source)  # of history it is how far it is behind now
        is_old = history is None and not is_reading
        then = f"  when it stopped ({show_instant(from_micros(lag.at))})" if is_old else ""
        out.print(f"  {source:<7} {_lag_text(lag, history)}{then}")
        if lag.waiting is not None:
            since = "" if lag.since is None else f" since {show_instant(from_micros(lag.since))}"
            out.print(f"  [yellow]{source} waits{since}: {escape(redact(lag.waiting))}[/]")
    if not phase.is_exact:
        out.print(
            f"  [yellow]not exact: {_rows(phase.clock)} came behind a frontier that the clock had "
            "moved; late table, reason clock[/]"
        )


def _rows(count: int) -> str:
    return f"{count:,} row{'s' * (count != 1)}"


def _lag_text(lag: Lag, history: int | None) -> str:
    """Rows and seconds, in all and by partition; of history the seconds alone."""
    behind = f"{lag.behind / SECOND:,.1f} s"
    if history is not None:
        return f"{behind} behind, {history / SECOND:,.1f} s of history before its seam"
    if not lag.rows:
        return f"{behind} behind"
    parts = ", ".join(
        f"{number}: {_rows(rows)} {lag.behinds[number] / SECOND:,.1f} s"
        for number, rows in lag.rows.items()
        if rows
    )
    whole = f"{_rows(sum(lag.rows.values()))} behind, {behind}"
    return whole + (f"  [dim]by partition {parts}[/]" if parts else "")
