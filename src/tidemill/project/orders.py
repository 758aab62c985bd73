"""Orders for runs, from this process or another: stop, pause, cancel, rate, rewind, forget."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tidemill.project.reports import Reports
from tidemill.runtime.reports.results import RunResult

if TYPE_CHECKING:
    from tidemill.runtime.driving.rewind import Rewound
    from tidemill.runtime.ends.forgetting import Forgotten


class Orders(Reports):
    """Tells drivers what to do, and changes runs that have no driver."""

    def stop(self, run: str) -> RunResult:
        """End a run's driver cleanly after its current slice; `resume` continues from there.

        If a supervised run has no driver at the moment, its supervisor starts no other.
        """
        return self._order(run, stopping=True)

    def pause(self, run: str) -> RunResult:
        """Pause a running run after its current slice; its driver keeps running.

        If a supervised run has no driver at the moment, its next driver begins paused.
        """
        return self._order(run, paused=True)

    def cancel(self, run: str) -> RunResult:
        """End a run for good: only the current slice is still committed, and pins are removed."""
        from tidemill.runtime.driving.orders import cancel

        return self.status(cancel(self.loaded, self.registry, run))

    def rate(self, run: str, rows: int | None) -> RunResult:
        """Let a run read at most so many rows per second from its next slice on; None: no limit.

        The order holds until the next one, also when the run is resumed.
        """
        from tidemill.runtime.driving.orders import order_rate

        return self.status(order_rate(self.loaded, self.registry, run, rows))

    def wait(
        self,
        run: str,
        timeout: float | None = None,
        *,
        on_look: Callable[[], object] = lambda: None,
    ) -> RunResult | None:
        """Wait until a run ends; None if it goes on after ``timeout`` seconds."""
        from tidemill.runtime.reports.awaiting import await_end

        ended = await_end(self.loaded.home, self.registry, run, timeout, on_look)
        return self.status(run) if ended else None

    def rewind(self, run: str, batch: int | None = None) -> Rewound:
        """Take a run without a driver back to a batch; `resume` runs later batches again.

        Without a batch: to the last one with complete state. Tables keep their rows.
        """
        from tidemill.runtime.driving.orders import rewind_run

        return rewind_run(self.loaded, self.registry, run, batch)

    def forget(self, *runs: str, **chosen: Any) -> list[Forgotten]:
        """Delete all that runs own: tags, shadows, their own late and dead tables, folder, entry.

        Runs are named, or chosen by ``older_than="30d"`` and ``states=["finished"]``. Tables that
        somebody named stay; a run that is running is refused. With ``dry_run=True`` the result says
        what would go. After a crash the same call does the rest.
        """
        from tidemill.runtime.ends.forgetting import forget_runs

        return forget_runs(self.loaded, self.runs(), runs, **chosen)

    def _order(self, run: str, **orders: bool) -> RunResult:
        from tidemill.runtime.driving.orders import order

        return self.status(order(self.loaded, self.registry, run, **orders))
