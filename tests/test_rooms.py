"""The rooms of the house (docs/design.md, section 3): who may import whom, and what loads alone."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tidemill
from tidemill.config.stream import LOGS

SRC = Path(tidemill.__file__).parent
MODULES = {
    ".".join(("tidemill", *path.relative_to(SRC).with_suffix("").parts)).removesuffix(
        ".__init__"
    ): path
    for path in sorted(SRC.rglob("*.py"))
}

# Each room with the rooms directly before it; what those may import, it may import too.
BEFORE = {
    "errors": (),
    "jsonvalue": (),
    "types": ("errors", "jsonvalue"),
    "storage": ("errors",),
    "config": ("types",),
    "pipeline": ("types",),
    "planning": ("config", "pipeline"),
    "iceberg": ("planning", "storage"),
    "archive": ("iceberg",),
    "runfolder": ("iceberg",),
    "rows": ("planning",),
    "records": ("rows", "storage"),
    "connectors": ("archive", "runfolder", "records"),
    "reading": ("connectors",),
    "folds": ("runfolder", "records"),
    "instances": ("folds",),
    "runtime": ("reading", "instances"),
    "review": ("runtime",),
    "project": ("review",),
    "starter": ("project",),
    "testing": ("project",),
    "pytest_plugin": ("testing",),
    "cli": ("ui",),
    "ui": ("starter",),
}
HOME = "tidemill"  # the package itself re-exports pipeline and, when asked, project


def allowed(room):
    found = {room, HOME} if room in ("starter", "testing", "cli", "ui") else {room}
    for before in BEFORE[room]:
        found |= allowed(before)
    return found


def room_of(module):
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else HOME


def imports_of(path):
    """Every module of ours that a file imports: at the top, in functions, for types."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the direction"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name in MODULES else node.module for name in names]
        else:
            continue
        yield from (name for name in names if name.split(".")[0] == "tidemill")


@pytest.mark.parametrize("module", MODULES)
def test_imports_go_one_way(module):
    room = room_of(module)
    if room == HOME:
        assert {room_of(name) for name in imports_of(MODULES[module])} <= {
            "pipeline",
            "project",
            "folds",
            "instances",
        }
        return
    assert room in BEFORE, f"{room} has no place in the house yet"
    for name in imports_of(MODULES[module]):
        assert room_of(name) in allowed(room), f"{module} must not import {name}"


def test_a_wrong_direction_would_be_seen(tmp_path):
    path = tmp_path / "wrong.py"
    path.write_text(
        "from typing import TYPE_CHECKING\n"
        "from tidemill import project\n"
        "if TYPE_CHECKING:\n    from tidemill.connectors.sinks.iceberg.commit import BatchStamp\n"
        "def late():\n    import tidemill.runfolder.lease\n"
    )
    assert {room_of(name) for name in imports_of(path)} == {"project", "connectors", "runfolder"}
    assert "reading" not in allowed("connectors")
    assert "connectors" not in allowed("runfolder")
    assert allowed("planning") == {
        *("planning", "config", "pipeline", "types", "jsonvalue", "errors")
    }


IMPURE = {"os", "pathlib", "io", "shutil", "tempfile", "glob", "time", "random", "subprocess",
          "socket", "threading", "fcntl", "sqlite3", "urllib", "logging"}  # fmt: skip


def impurities(path):
    """What a file would need to ask anybody but its caller."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from {alias.name.split(".")[0] for alias in node.names} & IMPURE
        elif isinstance(node, ast.ImportFrom):
            yield from {(node.module or "").split(".")[0]} & IMPURE
        elif isinstance(node, ast.Call):
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            yield from {name} & {"open", "read_text", "read_bytes", "now", "utcnow", "getenv"}


@pytest.mark.parametrize("module", [m for m in MODULES if room_of(m) == "planning"])
def test_planning_is_values_in_values_out(module):
    assert not list(impurities(MODULES[module]))


def test_an_impure_plan_would_be_seen(tmp_path):
    path = tmp_path / "impure.py"
    path.write_text(
        "import os.path\ndef cores():\n    from pathlib import Path\n"
        "    return open('x'), Path('x').read_text(), datetime.now()\n"
    )
    assert sorted(impurities(path)) == ["now", "open", "os", "pathlib", "read_text"]


RUN_FILES = re.compile(
    r"(manifest|control|journal|jvm|topics|compared|course[^ ]*|lag\..*|next\..*)\.json"
    r"|control\.lock|lease|watch|checkpoint|offsets|commits|folds|side|tables|slices|requests|.*\.tmp"
)
NAMED_IN = "tidemill.runfolder.folder"


def joined_names(path):
    """Texts that are joined to a path or location: ``folder / "name"``."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            yield from (
                part.value
                for part in ast.walk(node.right)
                if isinstance(part, ast.Constant) and isinstance(part.value, str)
            )


@pytest.mark.parametrize("module", MODULES)
def test_a_file_of_a_run_is_named_in_one_place(module):
    if module == NAMED_IN:
        return
    path = MODULES[module]
    assert not [name for name in joined_names(path) if RUN_FILES.fullmatch(name)]
    assert not re.search(r"[\"}]\.arrow\"", path.read_text("utf-8")), "a suffix is a name, too"


@pytest.mark.parametrize("module", MODULES)
def test_drafts_are_renamed_in_one_place(module):
    """Files appear whole by ``storage``; the JVM writes the one draft that is not ours."""
    if room_of(module) == "storage" or module == "tidemill.runtime.spark.classes":
        return
    text = MODULES[module].read_text("utf-8")
    assert not re.search(r"\.tmp\b|os\.(link|replace|rename)\(|draft\.replace\(", text)


def asks_for_a_log(tree):
    """Where code asks which kind of live log it has: by a pin's kind, or by a section's class."""
    sections = {value.partition(":")[2] for value in LOGS.builtin.values()}
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            sides = [ast.unparse(side) for side in (node.left, *node.comparators)]
            if any(side.endswith(("live.kind", "live.type", "live_pin.kind")) for side in sides):
                yield node.lineno
        if isinstance(node, ast.Name | ast.alias):
            name = node.id if isinstance(node, ast.Name) else node.name
            if name in sections:
                yield node.lineno


@pytest.mark.parametrize("module", MODULES)
def test_only_logs_know_kinds_of_logs(module):
    """Others ask the contract: a new log is one file."""
    if module.startswith("tidemill.connectors.logs"):
        return
    logs = {name for name in imports_of(MODULES[module]) if ".connectors.logs" in name}
    assert logs <= {"tidemill.connectors.logs.contract"}
    assert not list(asks_for_a_log(ast.parse(MODULES[module].read_text("utf-8"))))


def test_asking_for_a_kind_of_log_would_be_seen():
    for code in (
        "if pin.live.kind == 'kafka': pass",
        "x = self.pin.live.kind in ('kafka', 'files')",
        "isinstance(live, KafkaLive)",
        "from tidemill.connectors.logs.files.home import FilesLive",
    ):
        assert list(asks_for_a_log(ast.parse(code))), code


@pytest.mark.parametrize("module", MODULES)
def test_only_planning_and_project_know_the_mode(module):
    names = {
        node.id if isinstance(node, ast.Name) else node.name
        for node in ast.walk(ast.parse(MODULES[module].read_text("utf-8")))
        if isinstance(node, ast.Name | ast.alias)
    }
    if room_of(module) not in ("types", "planning", "project"):
        assert "Mode" not in names


KINDS_OF_ARCHIVES = {"iceberg", "parquet", "delta"}
ARCHIVE_CLASSES = {
    *("IcebergArchive", "ParquetArchive", "DeltaArchive"),
    *("IcebergReader", "ParquetReader", "DeltaReader", "LogColumns"),
}


def asks_for_kinds(path):
    """Comparisons with a kind's name or a look at a kind's class, by line."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Compare):
            texts = {getattr(each, "value", None) for each in (node.left, *node.comparators)}
            sides = {getattr(each, "attr", "") for each in (node.left, *node.comparators)}
            if sides & {"kind", "type"} and texts & KINDS_OF_ARCHIVES:
                yield node.lineno
        elif isinstance(node, ast.Name | ast.alias):
            name = node.id if isinstance(node, ast.Name) else node.name
            if name in ARCHIVE_CLASSES:
                yield node.lineno


LIVE = {"tidemill.reading.slicing", "tidemill.runtime.plans.liveplan"}
"""They ask for the kind of a live home, not of an archive."""


@pytest.mark.parametrize(
    "module", [name for name in MODULES if room_of(name) != "connectors" and name not in LIVE]
)
def test_nobody_outside_of_the_connectors_asks_for_the_kind_of_an_archive(module):
    assert not list(asks_for_kinds(MODULES[module]))


def test_a_look_at_a_kind_of_archive_would_be_seen(tmp_path):
    path = tmp_path / "wrong.py"
    path.write_text(
        "from tidemill.connectors.archives.iceberg import IcebergArchive\n"
        "def one(pin): return pin.kind == 'parquet'\n"
        "def two(archive): return isinstance(archive, IcebergArchive)\n"
    )
    assert list(asks_for_kinds(path)) == [1, 2, 3]


def test_the_offsets_of_a_source_load_no_machinery():
    """Spark asks for the first offset while the rest of a source is still being opened."""
    code = (
        "import sys, tidemill.reading.route\n"
        "heavy = ('pyarrow', 'pyiceberg', 'pydantic', 'yaml', 'deltalake')\n"
        "found = [name for name in heavy if name in sys.modules]\n"
        "assert not found, found"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_what_does_not_need_spark_loads_without_it():
    """The faces and all decisions; a pipeline's file needs only the package itself."""
    code = (
        "import sys, tidemill, tidemill.project, tidemill.config, tidemill.cli.main\n"
        "assert tidemill.Project and tidemill.load\n"
        "found = [name for name in ('pyspark', 'py4j') if name in sys.modules]\n"
        "assert not found, found"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


SPARK_ONLY = {
    "tidemill.runtime.spark.warming",
    "tidemill.reading.datasource",
    "tidemill.starter.pipelines",
}


def test_every_other_module_loads_where_there_is_no_spark():
    names = sorted(MODULES.keys() - SPARK_ONLY)
    code = (
        "import importlib, sys\n"
        "class NoSpark:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in ('pyspark', 'py4j'):\n"
        "            raise ImportError(f'{name} is not here')\n"
        "sys.meta_path.insert(0, NoSpark())\n"
        f"for name in {names!r}:\n    importlib.import_module(name)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_importing_the_package_loads_no_machinery():
    code = (
        "import sys, tidemill\n"
        "heavy = ('pyarrow', 'pyiceberg', 'pydantic', 'yaml', 'tidemill.project')\n"
        "found = [name for name in heavy if name in sys.modules]\n"
        "assert not found, found"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_unknown_attribute_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'tidemill' has no attribute 'Projct'"):
        _ = tidemill.Projct


@pytest.mark.parametrize("path", MODULES.values(), ids=list(MODULES))
def test_names_tell_what_is_inside_and_files_stay_short(path):
    assert not {"utils", "common", "helpers", "manager"} & {path.stem, *path.relative_to(SRC).parts}
    assert len(path.read_text("utf-8").splitlines()) <= 500


@pytest.mark.parametrize(
    "path", [path for path in MODULES.values() if path.name == "__init__.py"], ids=str
)
def test_packages_only_re_export(path):
    tree = ast.parse(path.read_text("utf-8"))
    work = (ast.FunctionDef, ast.ClassDef, ast.For, ast.While, ast.With)
    found = [node for node in tree.body if isinstance(node, work)]
    assert {getattr(node, "name", "") for node in found} <= {"__getattr__"}  # to re-export late


SINK_CLASSES = {"IcebergSink", "KafkaSink", "KafkaTopic", "PostgresSink", "PostgresTable"}


def asks_for_a_sink(path):
    """Where a file asks which kind a sink is: its class, its type, or a field of one kind."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Name | ast.alias):
            name = node.id if isinstance(node, ast.Name) else node.name
            if name in SINK_CLASSES:
                yield name
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            texts = [ast.unparse(side) for side in sides]
            if any("sink" in text and text.endswith((".kind", ".type")) for text in texts):
                yield ast.unparse(node)
        is_own = isinstance(node, ast.Attribute) and node.attr in ("topic", "own")
        if is_own and ast.unparse(node.value).split(".")[-1] in ("sink", "sinks"):
            yield ast.unparse(node)


@pytest.mark.parametrize("module", MODULES)
def test_only_connectors_know_the_kinds_of_sinks(module):
    if room_of(module) != "connectors":
        assert list(asks_for_a_sink(MODULES[module])) == []


def test_a_question_for_the_kind_of_a_sink_would_be_seen(tmp_path):
    path = tmp_path / "asks.py"
    path.write_text(
        "from tidemill.connectors.sinks.kafka.section import KafkaSink\n"
        "if isinstance(found, KafkaSink) or sink.kind == 'kafka' or sink.topic is None:\n    pass\n"
    )
    found = set(asks_for_a_sink(path))
    assert found == {"KafkaSink", "sink.kind == 'kafka'", "sink.topic"}
