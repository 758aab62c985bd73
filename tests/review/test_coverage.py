"""A shadow with a part of the rows must not take the place of all of them."""

import pytest

from tests.manifests import change, make_pin
from tests.review.desk_yard import LIVE, A, DeskYard
from tests.review.test_publishing import NEW, OLD
from tidemill.errors import RunError
from tidemill.planning.code.params import Param
from tidemill.runfolder.folder import MANIFEST, RunFolder

EU = "(region in ('eu'))"


@pytest.fixture
def yard(tmp_path):
    return DeskYard.make(tmp_path)


def source(where):
    return {"plays": make_pin("plays", where=where)}


def configured(yard, **changes):
    """The pipeline's section in the YAML with other values."""
    config = yard.stage.project.loaded.config
    config.pipelines["pipeline"] = config.pipelines["pipeline"].model_copy(update=changes)


@pytest.mark.parametrize("option", ["region", "where"])
def test_a_run_of_a_part_of_the_input_is_refused(yard, option):
    yard.backfill(asked={option: ["eu"]}, sources=source(EU))
    for options in ({}, {"dry_run": True}, {"min_match": 0}, {"changed": True}):
        with pytest.raises(RunError, match=f"was made with --{option}, and production was not"):
            yard.desk.publish(A, **options)
    assert yard.rows() == OLD
    (note,) = [each for each in yard.desk.compare(A).notes if "made with" in each]
    assert note == f"the run was made with --{option}, and production was not"
    told = yard.cli("publish", A, "--yes")
    assert told.code == 1 and "--partial publishes all the same" in told.err
    yard.desk.publish(A, partial=True)
    assert yard.rows() == NEW
    yard.desk.publish(A)
    yard.desk.revert(A)
    assert yard.rows() == OLD


def test_a_filter_that_production_has_too_is_no_part(yard):
    yard.backfill(asked={"region": ["eu"]}, sources=source(EU))
    yard.live(30)
    with pytest.raises(RunError, match="--region"):
        yard.desk.publish(A, dry_run=True)
    rewrite(yard, LIVE, sources=source(EU))
    yard.desk.publish(A, dry_run=True)


def test_the_filter_of_the_yaml_is_no_part(yard):
    yard.backfill(asked={"where": ["plays:1 = 1"]}, sources=source("(region = 'eu')"))
    section = yard.stage.project.config.pipelines["pipeline"].source("plays")
    with pytest.raises(RunError, match="--where"):
        yard.desk.publish(A, dry_run=True)
    configured(yard, sources={"plays": section.model_copy(update={"where": "region = 'eu'"})})
    yard.desk.publish(A, dry_run=True)


def test_parameters_that_production_does_not_have_are_refused(yard):
    yard.backfill(asked={"param": ["campaign=vip"]}, params={"campaign": Param("str", "vip")})
    with pytest.raises(RunError, match="was made with --param campaign, and production was not"):
        yard.desk.publish(A)
    configured(yard, params={"campaign": "other"})
    with pytest.raises(RunError, match="--param campaign"):
        yard.desk.publish(A)
    configured(yard, params={"campaign": "vip"})
    yard.desk.publish(A, dry_run=True)
    configured(yard, params={})
    yard.live(30)
    with pytest.raises(RunError, match="--param campaign"):
        yard.desk.publish(A)
    rewrite(yard, LIVE, params={"campaign": Param("str", "vip")})
    yard.desk.publish(A, dry_run=True)


def rewrite(yard, run, **changes):
    """Give the manifest of a run other parts."""
    folder = RunFolder.of(yard.stage.project.loaded.home, run)
    made = change(folder.read_manifest(), **changes)
    (folder.files / MANIFEST).write(made.to_json())
