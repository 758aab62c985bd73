"""What a project's runs have done: their state, rows, late rows, logs and fold state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tidemill.config.loader import LoadedConfig
from tidemill.config.project import ProjectConfig
from tidemill.runfolder.folder import RunFolder
from tidemill.runtime.registry import BatchStretch, Registry, open_registry
from tidemill.runtime.reports.overview import RunSummary, latest_run, list_runs
from tidemill.runtime.reports.results import RunResult
from tidemill.runtime.reports.status import read_status

if TYPE_CHECKING:
    import pyarrow as pa

    from tidemill.planning.metrics.hours import RunMetrics
    from tidemill.runtime.reports.dead import DeadReport
    from tidemill.runtime.reports.diagnosis import Diagnosis
    from tidemill.runtime.reports.late import LateReport
    from tidemill.runtime.reports.rows import PlaceRows
    from tidemill.runtime.reports.states import RunStates, StateSummary


class Reports:
    """Looks at the runs of one project, and changes nothing."""

    def __init__(self, loaded: LoadedConfig) -> None:
        self.loaded = loaded

    @property
    def config(self) -> ProjectConfig:
        """The checked configuration."""
        return self.loaded.config

    @property
    def registry(self) -> Registry:
        """The project's runs."""
        return open_registry(self.loaded.home)

    def _folder(self, run: str) -> RunFolder:
        return RunFolder.of(self.loaded.home, run)

    def runs(
        self, pipeline: str | None = None, state: str | None = None, last: int | None = None
    ) -> list[RunSummary]:
        """The runs, oldest first; one whose driver died is shown as failed.

        Only those of a pipeline, or in a state, or the ``last`` ones of these, if they are given.
        """
        return list_runs(self.loaded, self.registry, pipeline, state, last)

    def status(self, run: str | None = None) -> RunResult:
        """One run, by default the latest: state, tables, rows, and how far it is.

        Of a run whose folder is gone only what the registry knows.
        """
        return read_status(self.loaded, self.registry, run)

    def rows(self, name: str | None = None, output: str | None = None) -> PlaceRows:
        """The rows of a run, a pipeline's latest run or a table; by default of the latest run.

        ``output`` is one of the run's outputs, or ``late`` or ``dead``; by default its first.
        """
        from tidemill.runtime.reports.rows import find_rows

        return find_rows(self.loaded, self.registry, name, output)

    def logs(self, run: str | None = None, *, follow: bool = False) -> Iterator[str]:
        """The log lines of a run, by default the latest; with ``follow`` until the run ends."""
        from tidemill.runtime.reports.logs import read_log

        return read_log(self.loaded.home, self.registry, run, follow=follow)

    def log_tail(self, run: str | None = None, lines: int = 200) -> list[str]:
        """The last log lines of a run; however long the log is, only its end is read."""
        from tidemill.runtime.reports.logs import read_tail

        return read_tail(self.loaded.home, self.registry, run, lines)

    def batches(self, run: str | None = None, most: int = 120) -> list[BatchStretch]:
        """The batches of a run, in at most so many stretches: rows, times and seconds of each.

        Of a run of very many batches the last ones, as many as the registry keeps.
        """
        registry = self.registry
        return registry.stretches(registry.get(run or latest_run(registry)).run, most)

    def late(self, pipeline_or_run: str | None = None, source: str | None = None) -> LateReport:
        """The late rows of a run (the latest), or of a pipeline's latest one that has read rows."""
        from tidemill.runtime.reports.late import read_late

        name = pipeline_or_run or latest_run(self.registry)
        run = self.registry.named(name)  # a run comes before a pipeline of that name
        return read_late(self.loaded, self.registry, run or name, source)

    def dead(
        self, pipeline_or_run: str | None = None, reason: str | None = None, rows: int = 20
    ) -> DeadReport:
        """The dead rows of a run (the latest), or of a pipeline's latest one that has read rows.

        ``reason``: only those whose reason contains this text. ``rows``: so many are shown.
        """
        from tidemill.runtime.reports.dead import read_dead

        name = pipeline_or_run or latest_run(self.registry)
        run = self.registry.named(name)  # a run comes before a pipeline of that name
        return read_dead(self.loaded, self.registry, run or name, reason, rows)

    def metrics(self, run: str | None = None, last: int | None = None) -> RunMetrics:
        """What a run's batches did, stage by stage; by default the latest run's.

        The newest batches are whole, older ones are summed into hours. ``last``: only so many
        batches, and no hours.
        """
        return self.registry.metrics(self.registry.get(run or latest_run(self.registry)).run, last)

    def diagnose(self, run: str | None = None) -> Diagnosis:
        """What limits a run, in sentences with figures; by default the latest run."""
        from tidemill.runtime.reports.diagnosis import diagnose_run

        return diagnose_run(self.loaded, self.registry, run)

    def state(
        self, run: str, operator: str | None = None, batch: int | None = None
    ) -> list[StateSummary]:
        """The state of each fold of a run after a batch; by default after the last complete one.

        A finished run has closed everything: its last state is empty, earlier states are not.
        """
        return self._states(run).summaries(operator, batch)

    def state_of(
        self, run: str, key: Any, operator: str | None = None, batch: int | None = None
    ) -> pa.Table:
        """The state rows of one key, which is a list with a value per key column, or one value.

        Text is parsed by the column's type. The schema's metadata has run, operator and batch.
        """
        values = key if isinstance(key, list | tuple) else [key]
        return self._states(run).rows_of(values, operator, batch)

    def _states(self, run: str) -> RunStates:
        from tidemill.runtime.reports.states import RunStates

        return RunStates(self._folder(self.registry.get(run).run))
