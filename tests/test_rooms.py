"""The rooms of the house (docs/design.md, section 3): who may import whom, and what loads alone."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import tidemill

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
    "types": ("errors",),
    "config": ("types",),
    "pipeline": ("types",),
    "planning": ("config", "pipeline"),
    "iceberg": ("planning",),
    "archive": ("iceberg",),
    "runfolder": ("iceberg",),
    "rows": ("planning",),
    "records": ("rows",),
    "connectors": ("archive", "runfolder", "records"),
    "reading": ("connectors",),
    "folds": ("iceberg", "records"),
    "runtime": ("reading", "folds"),
    "review": ("runtime",),
    "project": ("review",),
    "starter": ("project",),
    "testing": ("project",),
    "cli": ("starter",),
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
    assert allowed("planning") == {"planning", "config", "pipeline", "types", "errors"}


@pytest.mark.parametrize("module", MODULES)
def test_only_planning_and_project_know_the_mode(module):
    names = {
        node.id if isinstance(node, ast.Name) else node.name
        for node in ast.walk(ast.parse(MODULES[module].read_text("utf-8")))
        if isinstance(node, ast.Name | ast.alias)
    }
    if room_of(module) not in ("types", "planning", "project"):
        assert "Mode" not in names


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
