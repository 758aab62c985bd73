"""Which run a word means that may be a run's name, a pipeline's, or both."""

import sqlite3
from contextlib import closing

from tests.cli.stage import Stage


def test_a_run_comes_before_a_pipeline_of_its_name_in_every_report(tmp_path):
    stage = Stage.make(tmp_path)
    project = stage.project
    for run in ("r1", "r2"):
        stage.run(run, [], on_time=5)
    assert project.status("pipeline").run == project.status().run == "r2"
    with closing(sqlite3.connect(project.loaded.home / "registry.db")) as registry:
        registry.execute("insert into names (name, run) values ('pipeline', 'r1')")
        registry.commit()
    for report in (project.status, project.late, project.dead):
        assert report("pipeline").run == "r1", report
