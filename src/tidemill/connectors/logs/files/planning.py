"""A feed of files as the driver sees it: the topic of its requests, and how far rows may be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidemill.connectors.logs.contract import Log
from tidemill.connectors.logs.files.home import FeedPin
from tidemill.connectors.logs.kafka.planning import TopicLog
from tidemill.errors import PlanError
from tidemill.planning.plan import Beginning

if TYPE_CHECKING:
    from tidemill.connectors.logs.contract import Json
    from tidemill.connectors.logs.kafka.log import KafkaLog, LogState


class FeedLog(TopicLog):
    """Positions and identity are those of the topic of requests."""

    seam = Log.seam  # where history ends in requested files nobody says
    require_seam = Log.require_seam

    @property
    def feed(self) -> FeedPin:
        """How files are read."""
        return FeedPin.of(self.live)

    def first_frontier(self, begin: Beginning, clock: int) -> int:
        """Before all rows of files that may be requested."""
        del clock
        return first_reach(self.topic, self.state, begin, self.live.slack, self.feed.slack)

    def first_positions(self, begin: Beginning, frontier: int) -> Json:
        """At the requests of now, whatever the times of their rows."""
        del frontier
        return self._places(begin, self.state.clock - self.live.slack)

    def check_beside(self, streams: int) -> None:
        """Beside others, a feed must say how old rows may be: else it holds them while idle."""
        if self.feed.slack is None and streams > 1:
            raise PlanError(
                "beside other streams a feed of files needs a slack: while no file is requested "
                "nothing else tells how far it has come",
                where=self.where,
                fix="add live.slack: longer than from a row's ingest time to the request for its "
                "file, for example '70 min' for hourly files",
            )

    @property
    def weakness(self) -> str:
        """What create time costs a feed."""
        return (
            "producers' clocks decide the order of requests, and so which rows of a file come too "
            "late: they go to late with the reason clock, and the run is no longer exact"
        )


def first_reach(
    log: KafkaLog, state: LogState, begin: Beginning, requests: int, slack: int | None
) -> int:
    """The frontier of a run that begins with this feed.

    A feed that promises nothing may begin with files of any age: it begins before all of them.
    """
    if slack is None:
        return 0
    now = state.clock - requests - slack
    if begin is not Beginning.EARLIEST:
        return now
    times = [log.time_at(number, low) for number, low in state.low.items()]
    return min([now, *(at - slack for at in times if at is not None)])
