"""The table of kinds: built-in connectors, those of packages, and what is wrong with a type."""

import sys
from importlib.metadata import EntryPoint
from types import ModuleType
from typing import Any, Literal

import pytest

from tests.config.test_sink import load
from tests.manifests import make_manifest
from tidemill.config import kinds
from tidemill.config.kinds import Kinds
from tidemill.config.pins import SinkPin
from tidemill.config.sink import SINKS, SinkSection
from tidemill.connectors.sinks.contract import Sink, SinkRun, open_sinks
from tidemill.errors import ConfigError


class DrawerSink(SinkSection):
    """A sink that a package brings."""

    type: Literal["drawer"]
    drawer: str

    @property
    def target(self) -> str:
        return self.drawer

    @classmethod
    def open(cls, run: SinkRun, name: str, pin: SinkPin) -> Sink:
        return Drawer(pin)


class Drawer(Sink):
    def __init__(self, pin: SinkPin) -> None:
        self.place, self.taken = pin.place, []

    def destination(self, batch: int = -1) -> Any: ...

    def commit(self, stamp: Any, written: Any) -> bool:
        self.taken += written
        return True


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> None:
    """A package is installed that adds a sink, and one that is broken."""
    module = ModuleType("drawers")
    module.DrawerSink = DrawerSink  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "drawers", module)
    entries = {
        name: EntryPoint(name, value, "tidemill.sinks")
        for name, value in (
            ("drawer", "drawers:DrawerSink"),
            ("broken", "not_here:Sink"),
            ("odd", "drawers:__name__"),
        )
    }
    monkeypatch.setattr(kinds, "_added", lambda group: entries)


def test_a_package_adds_a_sink_by_its_entry_point_alone(tmp_path, package):
    config = load(tmp_path, "{type: drawer, drawer: top, time: t}").config
    sink = config.pipelines["p"].sinks["output"]
    assert isinstance(sink, DrawerSink)
    assert type(config).model_validate(config.model_dump(mode="json", by_alias=True)) == config
    pin = sink.pin("{}", "top")
    manifest = make_manifest(sinks={"output": pin})
    run: Any = SinkRun(None, None, manifest, tmp_path)  # type: ignore[arg-type]
    (opened,) = open_sinks(run).values()
    assert isinstance(opened, Drawer)
    assert opened.commit(None, [b"x"])


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize(
    ("text", "path", "message", "fix"),
    [
        ("{type: drawr}", "", "unknown type 'drawr'", "did you mean 'drawer'?"),
        ("{type: drawer, draw: x}", ".draw", "unknown key 'draw'", "did you mean 'drawer'?"),
        ("{type: drawer}", "", "the key 'drawer' is missing", ""),
        ("{type: broken}", "", "the type 'broken' cannot be loaded", "install what the package"),
        ("{type: odd}", "", "the type 'odd' is drawers:__name__, which is no class", "let the"),
    ],
)
def test_a_mistake_with_a_kind_of_a_package(tmp_path, text, path, message, fix):
    with pytest.raises(ConfigError) as raised:
        load(tmp_path, text)
    assert raised.value.facts == {"path": f"pipelines.p.sinks.output{path}"}
    assert raised.value.message.startswith(message)
    assert fix in raised.value.fix


def test_every_built_in_sink_is_where_the_table_says():
    for name in SINKS.names():
        found = SINKS.find(name)
        assert issubclass(found, SinkSection)
        assert hasattr(found, "open")


def test_a_built_in_kind_cannot_be_replaced(package, monkeypatch):
    entry = EntryPoint("kafka", "drawers:DrawerSink", "tidemill.sinks")
    monkeypatch.setattr(kinds, "_added", lambda group: {"kafka": entry})
    assert SINKS.find("kafka") is not DrawerSink
    assert SINKS.names().count("kafka") == 1


def test_an_unknown_kind_names_the_nearest():
    table = Kinds("tidemill.none", {"iceberg": "x:Y"})
    with pytest.raises(ConfigError) as raised:
        table.find("icebreg")
    assert raised.value.fix == "did you mean 'iceberg'?"
