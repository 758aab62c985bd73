import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tidemill.runtime.spark import session
from tidemill.runtime.spark.session import choose_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUICK = str(Path(session.__file__).with_name("python.sh"))


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    """What is chosen here is forgotten after each test."""
    for name in ("PYSPARK_PYTHON", "TIDEMILL_PYTHON"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


@pytest.mark.parametrize(
    ("master", "python"),
    [
        ("local", QUICK),
        ("local[2]", QUICK),
        ("local[*,4]", QUICK),
        ("local-cluster[2,1,1024]", sys.executable),
        ("spark://host:7077", sys.executable),
    ],
)
@pytest.mark.parametrize("before", ["local[2]", "spark://host:7077"])
def test_only_processes_on_this_machine_start_the_quick_way(before, master, python):
    choose_python(before)
    choose_python(master)
    assert os.environ["PYSPARK_PYTHON"] == python


def test_a_python_the_user_chose_stays(monkeypatch):
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python")
    choose_python("local[2]")
    assert os.environ["PYSPARK_PYTHON"] == "/opt/python"
    assert "TIDEMILL_PYTHON" not in os.environ


def test_a_launcher_that_may_not_be_run_is_left_out(monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)
    choose_python("local[2]")
    assert os.environ["PYSPARK_PYTHON"] == sys.executable


@pytest.mark.parametrize("mine", [[], ["/my modules", "/a*b"]])
def test_the_launcher_leaves_out_what_spark_put_first(monkeypatch, mine):
    choose_python("local[2]")
    monkeypatch.setenv("SPARK_HOME", "/the spark")
    spark = ["/the spark/python/lib/pyspark.zip", "/the spark/python/lib/py4j-1-src.zip"]
    spark.append("/the spark/jars/spark-core_2.13-4.3.0.jar")
    monkeypatch.setenv("PYTHONPATH", ":".join([*spark, *mine[:1], *spark, *mine[1:]]))
    code = "import os, sys; print(os.environ['PYTHONPATH'], sys.executable, *sys.argv[1:], sep='|')"
    told = subprocess.run(
        [QUICK, "-c", code, "a b", "*"], check=True, capture_output=True, text=True
    )
    assert told.stdout.strip() == "|".join([":".join(mine), sys.executable, "a b", "*"])


@pytest.mark.spark
def test_workers_import_the_pyspark_of_the_driver(spark: "SparkSession"):
    import pyspark

    def tell(batches):
        import pyarrow as pa
        import pyspark

        yield pa.RecordBatch.from_pydict({"file": [pyspark.__file__]})

    found = spark.range(0, 1, 1, 1).mapInArrow(tell, "file string").collect()
    assert [row.file for row in found] == [pyspark.__file__]


@pytest.mark.spark
def test_a_checkpoint_is_written_without_checksums_and_links(spark: "SparkSession", tmp_path: Path):
    """Hadoop starts a process for every link that it looks up and every file that it makes."""
    jvm = spark.sparkContext._jvm
    conf = spark._jsparkSession.sessionState().newHadoopConf()
    path = jvm.org.apache.hadoop.fs.Path(str(tmp_path))
    package = jvm.org.apache.spark.sql.execution.streaming.checkpointing
    files = package.CheckpointFileManager.create(path, conf)
    assert files.getClass().getSimpleName() == "FileSystemBasedCheckpointFileManager"
    stream = files.createAtomic(jvm.org.apache.hadoop.fs.Path(str(tmp_path / "1")), False)
    stream.close()
    assert [found.name for found in tmp_path.iterdir()] == ["1"]
