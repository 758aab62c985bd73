"""Choose the instances that a backfill computes. Each of them is always computed whole."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from tidemill.errors import PlanError, nearest
from tidemill.planning.instances.book import Book
from tidemill.planning.instances.values import Instance
from tidemill.types import TimeRange, to_micros


def choose(
    book: Book, asked: Collection[str], span: TimeRange, withdrawn: Collection[str], where: str
) -> list[Instance]:
    """Those whose period overlaps the range; if ids are asked for, exactly these.

    An instance that was withdrawn is left out, and cannot be asked for.
    """
    for text in asked:
        _require(book, text, withdrawn, where)
    low, high = to_micros(span.start), to_micros(span.end)
    named = [each for each in book.valid if str(each.id) in asked] if asked else book.valid
    chosen = [each for each in _without(named, withdrawn) if each.overlaps(low, high)]
    outside = sorted({*asked} - {str(each.id) for each in chosen})
    if outside:
        raise PlanError(
            f"the period of the instance {outside[0]!r} has no moment in {span}",
            where=where,
            fix="leave --from and --to out: an instance is always computed whole",
            instance=outside[0],
        )
    if not chosen:
        raise PlanError(
            f"no instance has a period that overlaps {span}",
            where=where,
            fix=f"the table has {len(book.valid)} instances and {len(book.broken)} broken rows: "
            "'tidemill instances list' shows them",
        )
    return chosen


def _without(instances: Iterable[Instance], withdrawn: Collection[str]) -> list[Instance]:
    return [each for each in instances if str(each.id) not in withdrawn]


def _require(book: Book, text: str, withdrawn: Collection[str], where: str) -> None:
    if text in withdrawn:
        fix = "its rows stay where they are; add it again under another id"
        raise PlanError(f"the instance {text!r} is withdrawn", where=where, fix=fix)
    if book.find(text) is not None:
        return
    broken = next((each for each in book.broken if str(each.id) == text), None)
    if broken is not None:
        raise PlanError(
            f"the row of {text!r} is no instance: {broken.reason}",
            where=where,
            fix="correct the row in the table, or add the instance under another id",
        )
    raise PlanError(
        f"there is no instance {text!r}",
        where=where,
        fix=nearest(text, [str(each.id) for each in book.valid]),
    )
