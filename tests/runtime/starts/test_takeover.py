"""One run takes over from a lost one: a refusal changes nothing, and two never go on for one."""

from dataclasses import replace

import pyarrow as pa
import pytest

from tests.connectors.archives.archives import open_local
from tests.manifests import change, make_manifest, make_pin
from tidemill.errors import PlanError, RunError
from tidemill.planning.code.behaviour import behaviour_line
from tidemill.planning.code.params import param_lines
from tidemill.rows.verdict import CLOCK, SIDE_SCHEMA
from tidemill.runfolder.folder import RunFolder
from tidemill.runfolder.lease import hold_lease, is_held
from tidemill.runtime.registry import BatchRecord, Registry, RunState
from tidemill.runtime.starts.recovery import Takeover
from tidemill.runtime.starts.starting import _require_lost
from tidemill.types import BEGINNING, to_micros

BATCH = BatchRecord(0, 5, 5, on_time=9, late=4, dead=0, out=9, suppressed=0, seconds=1.0, clock=2)


@pytest.fixture
def registry(tmp_path):
    made = Registry(tmp_path / "registry.db")
    made.add("lost", "p", "live")
    made.set_state("lost", RunState.FAILED, "its driver died")
    return made


@pytest.fixture
def takeover(tmp_path, registry):
    return Takeover(tmp_path, registry, "p", "lost")


def folder(home, run, **changes):
    made = RunFolder.of(home, run)
    made.write_manifest(make_manifest(run=run, pipeline="p", **changes))
    return made


def test_a_refusal_changes_nothing(tmp_path, registry, takeover):
    path = folder(tmp_path, "lost").path

    def refuse():
        with takeover.held():
            assert is_held(path), "no driver can begin meanwhile"
            raise RunError("the archive does not reach that far")

    with pytest.raises(RunError):
        refuse()
    assert not is_held(path)
    record = registry.get("lost")
    assert (record.state, record.error) == (RunState.FAILED, "its driver died")
    takeover.give_up("next")
    assert registry.get("lost").state is RunState.CANCELLED


def test_a_run_that_is_driven_is_not_lost(tmp_path, takeover):
    path = folder(tmp_path, "lost").path
    with hold_lease(path, "lost"), pytest.raises(RunError, match="is running"), takeover.held():
        pass


def test_two_runs_never_go_on_for_one(tmp_path, registry, takeover):
    folder(tmp_path, "next", recovers="lost")
    registry.add("next", "p", "live")
    with pytest.raises(RunError, match="next goes on for lost already"), takeover.held():
        pass
    registry.set_state("next", RunState.CANCELLED)  # if it gave rows, the tables say so
    with takeover.held():
        pass


def test_the_lost_runs_filter_must_be_given_again(tmp_path, takeover):
    pin = make_pin("plays")
    made = make_manifest(late_table="archive.late", sources={"plays": pin})
    filtered = {"plays": change(pin, where="country = 'DE'")}
    folder(tmp_path, "lost", sources=filtered, inherited=0)
    with pytest.raises(PlanError, match="country = 'DE'") as raised:
        takeover.require_same_code(made, "")
    assert "--where" in raised.value.fix
    takeover.require_same_code(replace(made, sources=filtered), "")


def test_code_that_does_something_else_than_the_lost_runs_is_refused(tmp_path, takeover):
    """What was open when the run was lost is made anew, and cut where its code had cut."""
    pin = make_pin("plays")
    before, after = (behaviour_line(f"output: window {size}") for size in ("1 h", "2 h"))
    lost = make_manifest(sources={"plays": pin}, behaviour=(before,))
    made = change(lost, behaviour=(after,))
    takeover.require_same_code(lost, lost.code_digest)
    with pytest.raises(PlanError, match=r"or its filters .* are not those of the lost run"):
        takeover.require_same_code(made, lost.code_digest)
    filtered = replace(lost, sources={"plays": change(pin, where="n > 1")})
    with pytest.raises(PlanError, match="or its filters"):
        takeover.require_same_code(filtered, lost.code_digest)
    folder(tmp_path, "lost", sources={"plays": pin}, behaviour=(before,))
    with pytest.raises(PlanError, match="it was: output: window 1 h; it is: output: window 2 h"):
        takeover.require_same_code(made, lost.code_digest)
    told = [(*param_lines({"campaign": name}), before) for name in ("vip", "spring")]
    folder(tmp_path, "other", sources={"plays": pin}, behaviour=told[0])
    lost, other = change(lost, behaviour=told[0]), replace(takeover, lost="other")
    with pytest.raises(PlanError, match=r"it was: param campaign = vip; it is: param .* = spring"):
        other.require_same_code(change(lost, behaviour=told[1]), lost.code_digest)
    takeover.require_same_code(made, "")  # an earlier version did not say it
    replace(takeover, changed_code=True).require_same_code(made, lost.code_digest)


def test_a_run_that_was_not_exact_leaves_one_that_is_not(tmp_path, registry, takeover):
    made = make_manifest(late_table="archive.late", output=(3, 9))
    catalog = open_local(tmp_path)
    registry.record_batch("lost", BATCH)
    found = takeover.inherit(made, catalog)
    assert (found.times.output, found.outputs.inherited) == ((to_micros(BEGINNING), 9), 2)
    folder(tmp_path, "lost", output=(1, 7), inherited=3)
    found = takeover.inherit(made, catalog)
    assert (found.times.output, found.outputs.inherited) == ((1, 7), 5)
    table = catalog.create_table("archive.late", SIDE_SCHEMA)
    table.append(pa.Table.from_pylist([{"reason": CLOCK}, {"reason": "late"}], SIDE_SCHEMA))
    unknown = replace(takeover, lost="gone")  # the registry was lost, too
    assert unknown.inherit(made, catalog).outputs.inherited == 1


def test_who_names_no_run_does_not_take_one_that_can_be_resumed(tmp_path):
    made = folder(tmp_path, "r1")
    _require_lost(made)
    (made.checkpoint / "offsets").mkdir(parents=True)
    with pytest.raises(PlanError, match="it is not lost") as raised:
        _require_lost(made)
    assert "'tidemill resume r1'" in raised.value.fix
