"""Publish, revert, history and shadows of whole runs: what is refused, and what is told."""

import json
from pathlib import Path

import pytest

from tests.cli.stage import OUTPUT_SCHEMA
from tests.manifests import make_pin
from tests.review.desk_yard import HOUR, LIVE, PLACE, SPAN, T0, A, B, DeskYard
from tidemill.cli.publish import publish
from tidemill.connectors.sinks.contract import Sink, SinkRun, open_sinks
from tidemill.connectors.sinks.iceberg.changes import published_in
from tidemill.connectors.sinks.iceberg.production import IcebergProduction
from tidemill.connectors.sinks.iceberg.tables import ensure_table
from tidemill.errors import RequestError, RunError, SinkError
from tidemill.review.publishing import hold_compared
from tidemill.review.writers import has_passed
from tidemill.runfolder.folder import RunFolder
from tidemill.runfolder.lease import hold_lease
from tidemill.runfolder.owner import is_owner, owner_properties
from tidemill.runtime.registry import GOING_ON, BatchRecord, RunState

OLD = [(9.0, 1, "old"), (11.0, 2, "old"), (21.0, 3, "old")]
NEW = [(9.0, 1, "old"), (11.0, 2, A), (12.0, 4, A), (21.0, 3, "old")]


@pytest.fixture
def yard(tmp_path):
    return DeskYard.make(tmp_path)


def test_publish_revert_publish_and_what_history_tells(yard):
    yard.backfill()
    (looked,) = yard.desk.publish(A, dry_run=True)
    assert (looked.change, looked.outlook.counts.rows_in, looked.outlook.counts.rows_out) == (
        None,
        2,
        1,
    )
    assert yard.rows() == OLD
    (done,) = yard.desk.publish(A)
    assert yard.rows() == NEW
    (again,) = yard.desk.publish(A)
    assert again.outlook.done == done.change
    yard.desk.revert(A)
    assert yard.rows() == OLD
    yard.desk.publish(A)
    assert yard.rows() == NEW
    told = yard.desk.history(PLACE)
    assert [str(each.action) for each in told] == ["publish", "revert", "publish"]
    assert {each.run for each in told} == {A} and all("@" in each.by for each in told)
    assert told[0].range.start.hour == 10 and told[0].counts.rows_in == 2


@pytest.mark.parametrize("state", [RunState.FAILED, RunState.STOPPED, RunState.CANCELLED])
def test_a_run_that_is_not_finished_is_refused(yard, state):
    yard.backfill(state=state)
    with pytest.raises(RunError, match=f"is {state}, not finished: its shadow lacks rows") as found:
        yard.desk.publish(A)
    assert "--unfinished" in found.value.fix
    assert yard.rows() == OLD
    yard.desk.publish(A, unfinished=True)
    assert yard.rows() == NEW


def test_a_run_that_is_driven_is_refused_in_any_case(yard):
    folder = yard.backfill(state=RunState.RUNNING)
    with hold_lease(folder.path, A), pytest.raises(RunError, match="driven by another process"):
        yard.desk.publish(A, unfinished=True)


def test_a_live_run_and_a_run_with_into_have_no_shadow(yard):
    yard.live(30)
    for unfinished in (True, False):
        with pytest.raises(RunError, match="is live: it writes into its tables directly"):
            yard.desk.publish(LIVE, unfinished=unfinished)
    yard.run(A, {"output": "marts.other"})
    with pytest.raises(SinkError, match=r"wrote directly into marts\.other, which is no shadow"):
        yard.desk.publish(A)


@pytest.mark.parametrize("hours", [None, 5.0, 19.999])
def test_a_live_run_that_could_write_into_the_range_is_refused(yard, hours):
    yard.backfill()
    yard.live(hours)
    with pytest.raises(RunError, match=f"the live run {LIVE} writes into {PLACE}") as found:
        yard.desk.publish(A)
    assert "--while-live" in found.value.fix
    yard.desk.publish(A, while_live=True)
    with pytest.raises(RunError, match="could still write rows of the range"):
        yard.desk.revert(A)


def test_a_live_run_beyond_the_range_does_not_matter(yard):
    yard.backfill()
    yard.live(20.0)
    yard.desk.publish(A)
    assert yard.rows() == NEW


def test_a_live_run_that_writes_nothing_so_early_does_not_matter(yard):
    """`run --from T --emit-from U` reads history, and gives no row with a time before U."""
    yard.backfill()
    times = {"ends": False, "look_ahead": 0}
    yard.run(LIVE, {"output": PLACE}, RunState.RUNNING, (SPAN[1], 2**62), **times)
    yard.desk.publish(A)
    assert yard.rows() == NEW
    yard.run(B, {"output": PLACE}, RunState.RUNNING, (SPAN[1] - 1, 2**62), **times)
    with pytest.raises(RunError, match=f"the live run {B} writes into {PLACE}"):
        yard.desk.revert(A)


def test_a_live_run_whose_folder_is_away_could_come_back(yard):
    yard.backfill()
    yard.live(12.0)
    yard.put(PLACE, LIVE, (30.0, 5, "live"), watermark=(T0 + 12 * HOUR) // 1_000)
    folder = RunFolder.of(yard.stage.project.loaded.home, LIVE).path
    folder.rename(folder.with_suffix(".away"))
    with pytest.raises(RunError, match=f"the run {LIVE} writes into {PLACE}, has lost its folder"):
        yard.desk.publish(A)
    yard.stage.project.registry.set_state(LIVE, RunState.CANCELLED)
    yard.desk.publish(A)


def test_a_publish_that_another_one_has_replaced_says_so(yard):
    yard.backfill()
    yard.desk.publish(A)
    assert "since then" not in yard.cli("publish", A, "--yes").out
    yard.backfill(B)
    yard.desk.publish(B)
    told = yard.cli("publish", A, "--yes").out
    assert f"since then {B} was published over rows of it: 'tidemill revert {B}' puts" in told
    (again,) = yard.desk.publish(A)
    assert again.to_json()["replaced_by"] == B
    assert yard.desk.publish(B)[0].outlook.replaced_by is None
    yard.desk.revert(B)
    assert yard.desk.publish(A)[0].outlook.replaced_by is None
    assert yard.rows() == NEW


def test_a_live_run_needs_to_be_as_far_as_its_own_windows_reach(yard):
    yard.backfill()
    yard.live(20.5, look_ahead=HOUR)
    with pytest.raises(RunError, match="could still write rows of the range"):
        yard.desk.publish(A)


def test_a_run_has_passed_with_its_watermark_and_what_rows_look_ahead():
    end = 10_000_000
    assert has_passed(10_000, end, 0) and not has_passed(9_999, end, 0)
    assert has_passed(12_000, end, 2_000_000) and not has_passed(11_999, end, 2_000_000)
    assert not has_passed(None, end, 0)


def test_another_backfill_into_production_is_refused_where_it_overlaps(yard):
    yard.backfill()
    beside = (SPAN[1], SPAN[1] + HOUR)
    yard.run(B, {"output": PLACE}, RunState.STOPPED, beside)
    yard.desk.publish(A, dry_run=True)
    yard.run(LIVE, {"output": PLACE}, RunState.STOPPED, (SPAN[1] - 1, SPAN[1] + HOUR))
    with pytest.raises(RunError, match=f"the backfill {LIVE} writes into {PLACE} and is stopped"):
        yard.desk.publish(A)


def test_a_run_of_another_project_that_wrote_a_moment_ago_is_refused(yard):
    yard.backfill()
    ahead = SPAN[1] // 1_000
    yard.put(PLACE, "20260104_120000_9999", (30.0, 9, "theirs"), watermark=ahead)
    yard.desk.publish(A, dry_run=True)
    yard.put(PLACE, "20260104_120000_9999", (9.0, 9, "theirs"), watermark=ahead - 1)
    with pytest.raises(RunError, match="9999 of another project wrote into"):
        yard.desk.publish(A, dry_run=True)
    assert yard.desk.publish(A, dry_run=True, while_live=True)


def test_a_range_that_changed_since_the_comparison_is_refused(yard):
    yard.backfill()
    yard.compared()
    hold_compared(yard.desk.loaded, yard.desk.registry, A)
    yard.put(PLACE, LIVE, (20.0, 5, "live"))
    assert yard.desk.publish(A, dry_run=True, while_live=True)[0].match == 50.0
    yard.put(PLACE, LIVE, (15.0, 6, "live"))
    with pytest.raises(SinkError, match="have changed since it was compared"):
        yard.desk.publish(A, while_live=True)
    yard.desk.publish(A, while_live=True, changed=True)
    assert yard.rows() == [*NEW[:3], (20.0, 5, "live"), NEW[3]]


def test_all_outputs_are_checked_before_the_first_is_changed(yard, monkeypatch):
    yard.put("marts.second", "somebody", (11.0, 7, "old"))
    places = {"output": f"{PLACE}__{A}", "second": f"marts.second__{A}"}
    yard.backfill(places=places)
    with pytest.raises(SinkError, match=f"the shadow 'marts.second__{A}' is gone"):
        yard.desk.publish(A)
    assert yard.rows() == OLD
    yard.put(f"marts.second__{A}", A, (12.0, 8, A))
    real = IcebergProduction.publish

    def fails_second(self, asked):
        if asked.output == "second":
            raise SinkError("the disk is full", fix="free space")
        return real(self, asked)

    with monkeypatch.context() as patch:
        patch.setattr(IcebergProduction, "publish", fails_second)
        with pytest.raises(RunError, match=r"the disk is full\. Changed already: output") as found:
            yard.desk.publish(A)
    assert f"'tidemill publish {A}' goes on with the rest" in found.value.fix
    assert yard.rows() == NEW
    first, second = yard.desk.publish(A)
    assert first.outlook.done is not None and second.outlook.done is None
    assert yard.rows("marts.second") == [(12.0, 8, A)]


def test_a_revert_takes_back_what_was_published_before_another_output_failed(yard, monkeypatch):
    places = {"output": f"{PLACE}__{A}", "second": f"marts.second__{A}"}
    yard.run(A, places)
    yard.put("marts.second", "somebody", (11.0, 9, "old"))
    yard.put(f"{PLACE}__{A}", A, (11.0, 2, A))
    yard.put(f"marts.second__{A}", A, (12.0, 3, A))
    with pytest.raises(SinkError, match="was never published"):
        yard.desk.revert(A)
    publish = IcebergProduction.publish

    def failing(self, asked):
        if asked.output == "second":
            raise SinkError("the disk is full", where="second", fix="free it")
        return publish(self, asked)

    with monkeypatch.context() as patch:
        patch.setattr(IcebergProduction, "publish", failing)
        with pytest.raises(RunError, match="Changed already: output"):
            yard.desk.publish(A)
    assert yard.rows() != OLD
    assert [each.output for each in yard.desk.revert(A)] == ["output"]
    assert yard.rows() == OLD
    assert yard.rows("marts.second") == [(11.0, 9, "old")]
    assert len(yard.desk.publish(A)) == 2
    assert len(yard.desk.revert(A)) == 2
    assert yard.rows() == OLD and yard.rows("marts.second") == [(11.0, 9, "old")]


def test_a_table_that_the_yaml_names_no_more_is_not_changed(yard):
    """What was compared is the new one: the old one would be changed unseen."""
    yard.backfill()
    yard.put("marts.v2", "somebody", (11.0, 2, A), (12.0, 4, A))
    kept = yard.stage.project.loaded.config.pipelines["pipeline"]
    name_another_table(yard)
    assert yard.desk.compare(A).match == 100
    with pytest.raises(RunError, match=rf"beside {PLACE}, and the YAML names marts\.v2"):
        yard.desk.publish(A)
    assert yard.rows() == OLD
    yard.stage.project.loaded.config.pipelines["pipeline"] = kept
    yard.desk.publish(A)
    name_another_table(yard)
    assert yard.desk.publish(A)[0].outlook.done is not None
    yard.desk.revert(A)
    assert yard.rows() == OLD


def test_shadows_are_listed_and_dropped(yard):
    yard.backfill()
    yard.backfill(B)
    yard.desk.publish(A)
    first, second = yard.desk.shadows()
    assert (first.run, first.rows, first.is_published, first.state) == (A, 2, True, "finished")
    assert (second.run, second.is_published, second.range.start.hour) == (B, False, 10)
    (chosen,) = yard.desk.drop_shadows(older_than="1h", unpublished=True, dry_run=True)
    assert chosen.shadow.run == B and len(yard.desk.shadows()) == 2
    yard.desk.drop_shadows(older_than="1h", unpublished=True)
    assert [each.run for each in yard.desk.shadows()] == [A]
    yard.desk.drop_shadows(A)
    assert yard.desk.shadows() == [] and yard.rows() == NEW
    yard.desk.revert(A)
    assert yard.rows() == OLD, "the state before is there until somebody expires it"
    with pytest.raises(SinkError, match=r"the shadow .* is gone"):
        yard.desk.publish(A)
    with pytest.raises(RequestError, match="there is no shadow of the run"):
        yard.desk.drop_shadows(A)


def test_shadows_of_runs_that_go_on_are_not_chosen_by_age(yard):
    yard.backfill()
    for state in (*GOING_ON, RunState.FAILED):
        yard.stage.project.registry.set_state(A, state)
        chosen = yard.desk.drop_shadows(older_than="1h", dry_run=True)
        assert len(chosen) == (state is RunState.FAILED), state


def test_forgetting_a_published_run_leaves_the_files_that_production_has(yard):
    yard.backfill()
    yard.desk.publish(A)
    (told,) = yard.stage.project.forget(A)
    assert told.stay == {f"{PLACE}__{A}": f"{PLACE} has files of it"}
    assert yard.rows() == NEW


def test_forgetting_a_reverted_run_leaves_what_production_still_names(yard):
    """The published state is tagged, so its files must stay as long as it is."""
    yard.backfill()
    yard.desk.publish(A)
    yard.desk.revert(A)
    (told,) = yard.stage.project.forget(A)
    assert f"{PLACE}__{A}" in told.stay


def test_a_publish_that_was_rolled_back_is_made_again(yard):
    """A rollback takes the rows back, and leaves the properties that say what was published."""
    yard.backfill()
    before = yard.snapshot(PLACE)
    yard.desk.publish(A)
    yard.catalog.load_table(PLACE).manage_snapshots().rollback_to_snapshot(before).commit()
    yard.put(PLACE, LIVE, (30.0, 5, "live"))
    assert yard.rows() == sorted([*OLD, (30.0, 5, "live")])
    assert [each.is_published for each in yard.desk.shadows()] == [False]
    assert published_in(yard.catalog.load_table(PLACE).metadata) == {}, "no cause comes from it"
    with pytest.raises(RunError, match=r"--min-match asks for 99\.9%"):
        yard.desk.publish(A, min_match=99.9, while_live=True)
    (done,) = yard.desk.publish(A, while_live=True)
    assert done.outlook.done is None and yard.rows() == [*NEW, (30.0, 5, "live")]
    (again,) = yard.desk.publish(A)
    assert again.outlook.done == done.change


def test_a_publish_holds_when_the_snapshots_after_it_are_expired(yard):
    yard.backfill()
    yard.desk.publish(A)
    for number in range(40):
        yard.put(PLACE, LIVE, (30.0 + number, number, "live"))
    assert yard.desk.publish(A)[0].outlook.done is not None


def rename(yard):
    yard.catalog.rename_table(PLACE, "marts.output__old")
    return "marts.output__old"


def name_another_table(yard):
    config = yard.stage.project.loaded.config
    section = config.pipelines["pipeline"]
    sink = section.sinks["output"].model_copy(update={"table": "marts.v2"})
    config.pipelines["pipeline"] = section.model_copy(update={"sinks": {"output": sink}})
    return PLACE


@pytest.mark.parametrize("move", [rename, name_another_table])
@pytest.mark.parametrize("drops", [True, False])
def test_production_keeps_its_files_where_nobody_names_it_any_more(yard, move, drops):
    yard.backfill()
    yard.desk.publish(A)
    place = move(yard)
    if drops:
        yard.desk.drop_shadows(A)
    else:
        (told,) = yard.stage.project.forget(A)
        assert told.stay == {f"{PLACE}__{A}": f"{place} has files of it"}
    assert yard.rows(place) == NEW
    tags = yard.catalog.load_table(place).metadata.refs
    assert (f"tidemill-before-{A}" in tags) is not drops


def test_nothing_is_dropped_while_production_s_metadata_cannot_be_found(yard):
    yard.backfill()
    yard.desk.publish(A)
    at = Path(yard.catalog.load_table(PLACE).metadata_location.removeprefix("file://"))
    aside = at.rename(at.with_suffix(".aside"))
    with pytest.raises(SinkError, match=f"the metadata of the table {PLACE} is gone"):
        yard.desk.drop_shadows(A)
    (told,) = yard.stage.project.forget(A)
    assert f"the metadata of the table {PLACE} is gone" in told.stay[f"{PLACE}__{A}"]
    aside.rename(at)
    assert yard.rows() == NEW


def test_the_commands(yard):
    yard.backfill()
    outcome = yard.cli("publish", A)
    assert outcome.code == 2 and "no terminal to ask on" in outcome.err + outcome.out
    assert yard.rows() == OLD
    outcome = yard.cli("publish", A, "--dry-run")
    assert outcome.code == 0 and "2 come in, 1 go" in outcome.err + outcome.out
    told = json.loads(yard.cli("publish", A, "--yes", "--json").out)
    assert told["outputs"][0]["rows"] == {"in": 2, "out": 1}
    assert yard.rows() == NEW
    assert "published already" in yard.cli("publish", A).out
    assert yard.cli("revert", A, "--yes").code == 0
    assert yard.rows() == OLD
    (first, second) = json.loads(yard.cli("history", PLACE, "--json").out)["changes"]
    assert (first["action"], second["action"]) == ("publish", "revert")
    assert "revert" in yard.cli("history", PLACE).out
    (shadow,) = json.loads(yard.cli("shadows", "--json").out)["shadows"]
    assert (shadow["run"], shadow["reverted"]) == (A, True)
    assert "reverted" in yard.cli("shadows").out
    assert "no longer be reverted" in yard.cli("shadows", "drop", A, "--dry-run").out
    assert yard.cli("shadows", "drop", A, "--yes").code == 0
    assert "there are no shadows" in yard.cli("shadows").out


def test_a_table_that_is_not_there_is_said(yard):
    yard.backfill()
    yard.catalog.drop_table(PLACE)
    outcome = yard.cli("publish", A, "--yes")
    assert outcome.code == 1 and f"the table '{PLACE}' is not there" in outcome.err + outcome.out
    assert yard.cli("history", "marts.nothing").code == 1
    for name in ("nothing", "", ".", "marts."):
        told = yard.cli("history", name)
        assert told.code == 1 and f"{name!r} is no name of a table" in told.err
    assert "there is no run or table '..'" in yard.cli("compare", A, "--with", "..").err
    assert SPAN[0] > T0


def test_a_minimal_match_compares_first_and_keeps_what_it_saw(yard):
    yard.backfill()
    with pytest.raises(RunError, match=r"are equal, --min-match asks for 99\.9%"):
        yard.desk.publish(A, min_match=99.9)
    assert yard.rows() == OLD
    assert yard.cli("publish", A, "--min-match", "99.9", "--yes").code == 1
    (done,) = yard.desk.publish(A, min_match=0)
    assert done.match is not None and done.match < 99.9
    yard.desk.revert(A)
    assert yard.desk.compare(A).match < 99.9
    for number in range(40):
        yard.put(PLACE, LIVE, (30.0 + number, number, "live"))
    yard.desk.publish(A)
    assert yard.desk.compare(A).match == 100
    assert f"tidemill-compared-{A}" in yard.catalog.load_table(PLACE).metadata.refs


def test_a_place_that_only_takes_rows_is_refused():
    class Log(Sink):
        place = "kafka:plays"

        def destination(self, batch=-1):
            raise NotImplementedError

        def commit(self, stamp, written):
            raise NotImplementedError

    with pytest.raises(SinkError, match="'told' goes to kafka:plays: what is there cannot be"):
        Log().production(A, "told")


@pytest.mark.parametrize("command", ["compare", "publish"])
def test_a_minimum_that_is_no_number_does_not_let_everything_pass(yard, command):
    yard.backfill()
    told = yard.cli(command, A, "--min-match", "nan", *(["--yes"] if command == "publish" else []))
    assert told.code == 2 and "is not a number from 0 to 100" in told.err
    assert yard.rows() == OLD


@pytest.mark.parametrize("minimum", [float("nan"), 100.1, -1])
def test_a_minimum_that_is_no_percentage_is_refused_in_python(yard, minimum):
    yard.backfill()
    with pytest.raises(RequestError, match="min_match is a percentage from 0 to 100"):
        yard.desk.publish(A, min_match=minimum)
    assert yard.rows() == OLD


def test_rows_that_come_while_the_question_waits_are_not_lost(yard, monkeypatch):
    yard.backfill()

    def answer(*args, **kwargs):
        yard.put(PLACE, "somebody", (15.0, 6, "now"))

    monkeypatch.setattr("tidemill.cli.publish.require_yes", answer)
    config = yard.stage.project.loaded.path
    with pytest.raises(SinkError, match="have changed since it was compared"):
        publish.callback(A, yes=False, config=config, as_json=True, dry_run=False)
    assert (15.0, 6, "now") in yard.rows()


def test_shadows_of_another_project_go_only_by_name_and_when_told(yard, tmp_path):
    """The other project may be writing it this very moment: its registry alone knows."""
    yard.stage.project.loaded.home.mkdir(parents=True, exist_ok=True)
    others = owner_properties(tmp_path / "other" / "home")
    ensure_table(yard.catalog, f"{PLACE}__{A}", OUTPUT_SCHEMA, None, "none", told=others)
    ensure_table(yard.catalog, f"{PLACE}__{B}", OUTPUT_SCHEMA, None, "none")
    own = owner_properties(yard.stage.project.loaded.home)
    ensure_table(yard.catalog, f"{PLACE}__{LIVE}", OUTPUT_SCHEMA, None, "none", told=own)
    assert own == owner_properties(yard.stage.project.loaded.home)
    told = [each.stranger for each in yard.desk.shadows()]
    assert told[0].startswith("of another project (") and str(tmp_path / "other") in told[0]
    assert told[1:] == ["not known here", None]
    assert "not known here" in yard.cli("shadows").out
    chosen = yard.desk.drop_shadows(older_than="1h", unpublished=True, dry_run=True)
    assert [each.shadow.run for each in chosen] == [LIVE], "ours, of a run that was forgotten"
    for run in (A, B):
        with pytest.raises(RequestError, match="is not this project's"):
            yard.desk.drop_shadows(run)
    assert yard.cli("shadows", "drop", "--older-than", "1h", "--foreign").code == 2
    assert yard.cli("shadows", "drop", A, "--yes").code == 2
    assert yard.cli("shadows", "drop", A, B, "--foreign", "--yes").code == 0
    assert [each.run for each in yard.desk.shadows()] == [LIVE]


def test_a_shadow_says_from_its_making_whose_it_is(yard):
    loaded, folder = yard.stage.project.loaded, yard.run(A)
    sinks = SinkRun(loaded, yard.catalog, folder.read_manifest(), folder.path)
    open_sinks(sinks)["output"].prepare(None)
    told = yard.catalog.load_table(f"{PLACE}__{A}").properties
    assert is_owner(loaded.home, told)
    assert is_owner(loaded.home / "other", told) is False
    yard.stage.project.registry.remove(A)
    (shadow,) = yard.desk.shadows()
    assert (shadow.stranger, shadow.state) == (None, None)


def test_a_range_whose_input_had_not_happened_is_refused_like_an_unfinished_run(yard):
    """Its rows of the last hours are made of a part of the input; production's may be right."""
    late = {"plays": make_pin(lateness=HOUR // 2)}
    yard.backfill(created=SPAN[1] - HOUR, look_ahead=HOUR, sources=late)
    with pytest.raises(RunError) as found:
        yard.desk.publish(A, dry_run=True)
    assert "had read input until 2026-01-01T19:00Z only" in found.value.message
    assert "needs input until 2026-01-01T21:30Z" in found.value.message
    assert "rows after 2026-01-01T17:30Z are not complete" in found.value.message
    assert "--unfinished" in found.value.fix and yard.rows() == OLD
    (warning,) = yard.stage.project.status(A).warnings
    assert "rows after 2026-01-01T17:30Z are not complete" in warning
    yard.desk.publish(A, unfinished=True)
    assert yard.rows() == NEW
    yard.desk.revert(A)
    yard.backfill(B, created=SPAN[1] + 3 * HOUR // 2, look_ahead=HOUR, sources=late)
    assert yard.stage.project.status(B).warnings == ()
    yard.desk.publish(B)


def test_a_shadow_with_other_rows_than_the_run_wrote_is_refused(yard):
    yard.backfill()
    record = BatchRecord(0, SPAN[1], 0, 2, 0, 0, 2, 0, 0.0)
    yard.stage.project.registry.record_batch(A, record)
    yard.desk.publish(A, dry_run=True)
    yard.put(f"{PLACE}__{A}", "somebody", (13.0, 5, "more"))
    with pytest.raises(RunError, match="wrote 2 rows, and its shadow has 3") as found:
        yard.desk.publish(A)
    assert "--changed" in found.value.fix and yard.rows() == OLD
    yard.desk.publish(A, changed=True)
    assert (13.0, 5, "more") in yard.rows()


def test_a_match_holds_until_production_is_changed(yard):
    yard.backfill()
    yard.desk.compare(A)
    assert "% when it was compared" in yard.cli("publish", A, "--dry-run").out
    assert yard.desk.publish(A, dry_run=True)[0].match is not None
    assert yard.desk.publish(A)[0].match is not None
    assert yard.desk.compare(A).match == 100
    assert "match" not in yard.cli("revert", A, "--dry-run").out
    yard.desk.revert(A)
    told = yard.cli("publish", A, "--dry-run").out
    assert "100.000000%" not in told and f"'tidemill compare {A}' shows" in told
