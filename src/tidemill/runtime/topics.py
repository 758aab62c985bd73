"""The topics a run writes: their settings, and the last batch whose messages are all in them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tidemill.config.sink import KafkaSink
from tidemill.connectors.sinks.kafka.arranging import arrange
from tidemill.connectors.sinks.kafka.producing import TopicTarget, require_topic
from tidemill.connectors.sinks.writing import RESULT_DDL, BatchWriter
from tidemill.errors import RunError
from tidemill.planning.messages import MessageShape
from tidemill.runfolder.folder import SENT
from tidemill.storage.location import Location

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame

    from tidemill.config.loader import LoadedConfig
    from tidemill.connectors.sinks.contract import Destination
    from tidemill.planning.manifest import Manifest


def topic_targets(loaded: LoadedConfig, manifest: Manifest) -> dict[str, TopicTarget]:
    """The outputs that go to topics, each of which is there and answers.

    The client's settings are the YAML's of now: they may hold secrets, so no file keeps them.
    """
    targets = {}
    for name, sink in manifest.sinks.items():
        if sink.topic is None:
            continue
        found = loaded.config.pipelines[manifest.pipeline].sinks.get(name)
        if not isinstance(found, KafkaSink):
            raise RunError(
                f"the run {manifest.run} writes the output {name!r} to a topic, the YAML no longer "
                "says where its brokers are",
                where=f"pipeline {manifest.pipeline}",
                fix="restore the sink, or start a new run",
            )
        client = {**found.options, "bootstrap.servers": found.brokers}
        targets[name] = TopicTarget(
            sink.topic, MessageShape.of(sink), manifest.output, client, manifest.run
        )
    for target in targets.values():
        require_topic(target)
    return targets


class OutputWriter:
    """Runs a batch on executors and writes its outputs; a topic gets a batch's messages once.

    A file in the run's folder says which batch's messages are all in the topics. A driver that
    dies before it is written repeats them, with the same ids.
    """

    def __init__(
        self, folder: Path, targets: Mapping[str, Destination], tasks: int, *, given: bool = False
    ) -> None:
        """``tasks`` is how many tasks make messages; ``given``: its tasks write by themselves."""
        self.targets, self.tasks, self.given = targets, tasks, given
        self._sent = Location.of(folder) / SENT
        self._shapes = {
            name: target.shape
            for name, target in targets.items()
            if isinstance(target, TopicTarget)
        }

    def write(self, frame: DataFrame, batch: int) -> DataFrame:
        """What the tasks tell, one row each; nothing runs before it is collected."""
        if self.given:
            return frame
        targets = dict(self.targets)
        if self._shapes:
            is_silent = self.sent() >= batch
            frame = arrange(frame, self._shapes, self.tasks)
            for name, target in self.targets.items():
                if isinstance(target, TopicTarget):
                    targets[name] = target.at(batch, is_silent)
        return frame.mapInArrow(BatchWriter(targets), RESULT_DDL)

    def sent(self) -> int:
        """The last batch whose messages are all in the topics, or −1."""
        try:
            return int(json.loads(self._sent.read_text())["batch"])
        except FileNotFoundError:
            return -1
        except (ValueError, KeyError, TypeError):
            raise RunError(
                "the file that says which messages are sent is damaged",
                where=str(self._sent),
                fix="delete it: the last batch's messages are written again, with the same ids",
            ) from None

    def note(self, batch: int) -> None:
        """The tasks of the batch have ended: its messages are in the topics."""
        if self._shapes and batch > self.sent():
            self._sent.write(json.dumps({"batch": batch}))
