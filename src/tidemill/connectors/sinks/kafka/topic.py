"""A topic as a sink: tasks send the messages, and a note says which batch is wholly sent."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from tidemill.connectors.sinks.contract import Sink, SinkRun
from tidemill.connectors.sinks.kafka.producing import TopicTarget, require_topic
from tidemill.errors import RunError
from tidemill.planning.messages import MessageShape
from tidemill.runfolder.folder import SENT
from tidemill.storage.location import Location

if TYPE_CHECKING:
    from pathlib import Path

    from tidemill.config.pins import SinkPin
    from tidemill.connectors.sinks.kafka.section import KafkaSink
    from tidemill.connectors.sinks.stamp import BatchStamp


class KafkaTopic(Sink):
    """A topic of a run. A log has no commit that could hold a stamp, so it is at least once.

    A file in the run's folder says which batch's messages are all in the run's topics. A driver
    that dies before it is written repeats them, with the same ids.
    """

    keeps_stamps: ClassVar[bool] = False

    def __init__(self, run: SinkRun, pin: SinkPin, section: KafkaSink) -> None:
        """Settings come from the YAML at each start: they may be secret, so no file keeps them."""
        self.place, self.shape = pin.place, MessageShape.of(pin)
        client = {**section.options, "bootstrap.servers": section.brokers}
        kept = run.manifest.kept
        self.target = TopicTarget(pin.own["target"], self.shape, kept, client, run.run)
        self._note = SentNote(run.folder)

    def check(self) -> None:
        """The topic must answer. Tidemill does not make it: its owner chooses the partitions."""
        require_topic(self.target)

    def destination(self, batch: int = -1) -> TopicTarget:
        """The topic for one batch; if its messages are all sent already, tasks only count rows."""
        return self.target.at(batch, self._note.sent() >= batch)

    def commit(self, stamp: BatchStamp, written: Sequence[bytes]) -> bool:
        """Note that the messages are sent: the batch's tasks have ended, so they are."""
        return self._note.note(stamp.batch)


class SentNote:
    """The note of the last batch whose messages are all in the run's topics."""

    def __init__(self, folder: Path) -> None:
        """``folder`` is the run's."""
        self._file = Location.of(folder) / SENT

    def sent(self) -> int:
        """The last batch whose messages are all in the topics, or −1."""
        try:
            return int(json.loads(self._file.read_text())["batch"])
        except FileNotFoundError:
            return -1
        except (ValueError, KeyError, TypeError):
            raise RunError(
                "the file that says which messages are sent is damaged",
                where=str(self._file),
                fix="delete it: the last batch's messages are written again, with the same ids",
            ) from None

    def note(self, batch: int) -> bool:
        """Write down that a batch is sent; returns whether that was not known before."""
        if batch <= self.sent():
            return False
        self._file.write(json.dumps({"batch": batch}))
        return True
