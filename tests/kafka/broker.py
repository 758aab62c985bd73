"""A real Kafka for tests, without Docker: one KRaft node on loopback, jars from Maven Central."""

import atexit
import base64
import shutil
import subprocess
import tempfile
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType

from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic, OffsetSpec

from tests.servers import HOST, dying_with_parent, fetch_jars, find_java, free_ports

VERSION = "4.1.0"
CACHE = Path(__file__).parents[2] / ".cache" / "kafka" / VERSION
_SECONDS = 60.0

# slf4j-simple: without a binding Kafka says nothing, not even why it cannot start.
_DEPENDENCIES = (
    f"org.apache.kafka:kafka_2.13:{VERSION}",
    "org.slf4j:slf4j-simple:1.7.36",
)

# No topic appears by a typo, and nothing is deleted because a test's timestamps are old. After a
# SIGKILL the controller waits for the end of the old session: three seconds, not nine.
_PROPERTIES = """\
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller}
advertised.listeners=PLAINTEXT://{host}:{port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
controller.listener.names=CONTROLLER
controller.quorum.voters=1@{host}:{controller}
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=500
log.dirs={data}
log.retention.ms=-1
log.cleaner.dedupe.buffer.size=4194304
auto.create.topics.enable=false
group.initial.rebalance.delay.ms=0
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
"""

Headers = list[tuple[str, str | bytes | None]]
Row = (
    tuple[int, bytes | None, bytes | None] | tuple[int, bytes | None, bytes | None, Headers | None]
)


class Broker:
    """One broker and its data. `start` it first; it dies with this process at the latest.

    `stop` and `kill` keep data and port, so that `restart` comes back as the same broker. The data
    is in `folder`, which stays, or in a temporary one, removed at exit.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or Path(tempfile.mkdtemp(prefix="tidemill-kafka-"))
        self._is_temporary = folder is None
        self._port = 0
        self._process: subprocess.Popen[bytes] | None = None
        # PR_SET_PDEATHSIG means the thread that forked: this one lives as long as the process.
        self._launcher = ThreadPoolExecutor(1, "kafka-launcher")
        self.log = self._folder / "kafka.log"
        atexit.register(self._clean)

    @property
    def brokers(self) -> str:
        """The address for `bootstrap.servers`; the same after a restart."""
        return f"{HOST}:{self._port}"

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start and wait until every partition has a leader. The first call makes the data."""
        if self.is_running:
            return
        properties = self._folder / "server.properties"
        if not self._port:
            self._port = self._format(properties)
        self._process = self._launch("kafka.Kafka", str(properties))
        try:
            self._await_ready()
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """Shut down in order: segments are flushed and marked clean."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise TimeoutError(f"Kafka did not stop in {_SECONDS:g} s{self._tail()}") from None
        self._process = None

    def kill(self) -> None:
        """SIGKILL: no flush, no goodbye to its clients."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def restart(self) -> None:
        """Come back with the same data on the same port, after a stop, a kill or neither."""
        self.stop()
        self.start()

    def create_topic(self, name: str, partitions: int = 1, **config: str) -> None:
        """Create a topic that can be used at once; config keys as Kafka's, with _ for dots."""
        settings = {"message.timestamp.type": "LogAppendTime"}
        settings |= {key.replace("_", "."): str(value) for key, value in config.items()}
        with self._admin() as admin:
            topic = NewTopic(name, partitions, 1, config=settings)
            admin.create_topics([topic])[name].result(_SECONDS)
            _await_leaders(admin, name, partitions)

    def add_partitions(self, name: str, total: int) -> None:
        """Grow a topic to `total` partitions."""
        with self._admin() as admin:
            admin.create_partitions([NewPartitions(name, total)])[name].result(_SECONDS)
            _await_leaders(admin, name, total)

    def delete_topic(self, name: str) -> None:
        """Delete a topic and wait until clients no longer see it."""
        with self._admin() as admin:
            admin.delete_topics([name])[name].result(_SECONDS)
            _await(lambda: name not in admin.list_topics(timeout=_SECONDS).topics, f"{name} gone")

    def delete_records(self, name: str, partition: int, before_offset: int) -> None:
        """Lose the rows before an offset, as retention would, but now."""
        cut = TopicPartition(name, partition, before_offset)
        with self._admin() as admin:
            admin.delete_records([cut])[cut].result(_SECONDS)

    def produce(self, name: str, messages: Iterable[Row]) -> None:
        """Write (partition, key, value) or (partition, key, value, headers), in order; flush.

        Raises:
            KafkaException: A message was not delivered; the first such error.
        """
        errors: list[KafkaError] = []

        def on_delivery(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                errors.append(error)

        # No retries: a row is there once or this raises. An idempotent producer would promise the
        # same, but waits a second for its id.
        producer = Producer(
            {**self._client(), "message.send.max.retries": 0, "message.timeout.ms": 30_000}
        )
        for partition, key, value, *rest in messages:
            headers = rest[0] if rest else None
            while not errors:
                try:
                    producer.produce(
                        name, value, key, partition, on_delivery=on_delivery, headers=headers
                    )
                    break
                except BufferError:  # the queue is full: let some go
                    producer.poll(0.1)
            producer.poll(0)
        left = producer.flush(_SECONDS)
        if errors:
            raise KafkaException(errors[0])
        if left:
            raise TimeoutError(f"{left} messages for {name} were not delivered{self._tail()}")

    def __enter__(self) -> "Broker":
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _format(self, properties: Path) -> int:
        """Make the data in an empty folder; the port is chosen once and kept with it."""
        self._folder.mkdir(parents=True, exist_ok=True)
        port, controller = free_ports(2)
        data = self._folder / "data"
        text = _PROPERTIES.format(host=HOST, port=port, controller=controller, data=data)
        properties.write_text(text, "utf-8")
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        code = self._launch(
            "kafka.tools.StorageTool", "format", f"--cluster-id={cluster}", f"--config={properties}"
        ).wait(_SECONDS)
        if code:
            raise RuntimeError(f"Kafka's storage could not be formatted: exit {code}{self._tail()}")
        return port

    def _launch(self, main: str, *arguments: str) -> subprocess.Popen[bytes]:
        command = [
            *dying_with_parent(), find_java(), "-Xms128m", "-Xmx384m",
            "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto",
            "-Djava.awt.headless=true",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            "-Dorg.slf4j.simpleLogger.showDateTime=true",
            "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
            "-cp", f"{jars()}/*", main, *arguments,
        ]  # fmt: skip
        with self.log.open("ab") as log:
            start = self._launcher.submit(
                subprocess.Popen,
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._folder,
                start_new_session=True,  # Ctrl-C is for pytest, which then stops the broker
            )
            return start.result()

    def _await_ready(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + _SECONDS
        with self._admin() as admin:
            while time.monotonic() < deadline:
                if self._process.poll() is not None:
                    code = self._process.returncode
                    raise RuntimeError(f"Kafka ended at its start: exit {code}{self._tail()}")
                try:
                    seen = admin.list_topics(timeout=1)
                except KafkaException:
                    time.sleep(0.05)
                    continue
                partitions = [
                    p for topic in seen.topics.values() for p in topic.partitions.values()
                ]
                if seen.brokers and all(p.leader >= 0 for p in partitions):
                    return
                time.sleep(0.05)
        raise TimeoutError(f"Kafka is not ready after {_SECONDS:g} s{self._tail()}")

    def _admin(self) -> AdminClient:
        return AdminClient(self._client())

    def _client(self) -> dict[str, str | int | float | bool]:
        return {
            "bootstrap.servers": self.brokers,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 100,
            "log_level": 0,  # a broker that is away is what tests are about, not news on stderr
        }

    def _tail(self, lines: int = 30) -> str:
        if not self.log.exists():
            return f"\n(no log at {self.log})"
        with self.log.open(encoding="utf-8", errors="replace") as log:
            return f"\nthe end of {self.log}:\n{''.join(deque(log, lines))}"

    def _clean(self) -> None:
        self.kill()
        if self._is_temporary:
            shutil.rmtree(self._folder, ignore_errors=True)


def jars() -> Path:
    """The folder with the server's jars; the first call on a machine downloads them."""
    return fetch_jars(CACHE, _DEPENDENCIES, "Kafka")


def _await_leaders(admin: AdminClient, name: str, partitions: int) -> None:
    """Wait until each partition's leader answers: the controller says yes before it does."""
    asked = {TopicPartition(name, number): OffsetSpec.latest() for number in range(partitions)}

    def is_answered() -> bool:
        try:
            for answer in admin.list_offsets(asked).values():
                answer.result(_SECONDS)
        except KafkaException:
            return False
        return True

    _await(is_answered, f"leaders for {name}")


def _await(is_done: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _SECONDS
    while not is_done():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {_SECONDS:g} s for {what}")
        time.sleep(0.02)
