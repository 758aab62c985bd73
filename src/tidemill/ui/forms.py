"""Forms that change something: each calls one function, or starts one command.

A change returns the address of the page that shows what became of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from urllib.parse import quote

from tidemill.errors import DeclinedError, RequestError, RunError
from tidemill.ui.door import Visit
from tidemill.ui.launching import Launch
from tidemill.ui.page import Office
from tidemill.ui.pages.switch import chosen

Change = Callable[[Office, Mapping[str, str], Visit], str]
_AT_ONCE = ("pause", "stop", "cancel")
_PATIENCE = 2.0
"""Seconds to wait for what a command says first."""


def order(office: Office, names: Mapping[str, str], visit: Visit) -> str:
    """Pause, stop, cancel, resume, retry a run, or give it another rate."""
    project, run = office.desk.project, office.desk.run(names["run"]).run
    asked = visit.one("order")
    if asked in _AT_ONCE:
        getattr(project, asked)(run)
    elif asked == "rate":
        project.rate(run, _rate(visit.one("rows")))
    elif asked == "resume":
        _require_started(_launch(office, ("resume", run), run))
    elif asked == "retry":
        return _place(_require_started(_launch(office, ("retry", run), None, visit.one("once"))))
    else:
        raise RequestError(f"there is no order {asked!r}", fix="load the page again")
    return f"/runs/{quote(run)}"


def start(office: Office, names: Mapping[str, str], visit: Visit) -> str:
    """Start what is chosen at the switch."""
    choice = chosen(office, names["name"], visit.form)
    choice.check()
    loaded = office.desk.project.loaded
    launch = office.launches.start(choice.start(loaded), loaded.home, key=_once(visit.one("once")))
    launch.wait(_PATIENCE)
    return _place(launch)


def compare(office: Office, names: Mapping[str, str], visit: Visit) -> str:
    """Compare a run with production, in the background."""
    run = office.desk.run(names["run"]).run
    office.answers.ask(f"compare {run}", office.command("compare", run))
    return f"/runs/{quote(run)}/review"


def decide(office: Office, names: Mapping[str, str], visit: Visit) -> str:
    """Publish or revert, after its dry run was shown and the run's id was typed."""
    run, action = office.desk.run(names["run"]).run, visit.one("action")
    if action not in ("publish", "revert"):
        raise RequestError(f"there is no action {action!r}", fix="load the page again")
    if visit.one("typed").strip() != run:
        raise DeclinedError(
            "what was typed is not the run's id: nothing was changed", fix=f"type {run} to {action}"
        )
    office.looks.carry_out(office.desk.project, visit.one("look"), run, action)
    return f"/runs/{quote(run)}/review"


CHANGES: dict[str, Change] = {
    "/runs/{run}/order": order,
    "/runs/{run}/compare": compare,
    "/runs/{run}/decide": decide,
    "/pipelines/{name}/start": start,
}


def _launch(
    office: Office, words: tuple[str, ...], run: str | None, once: str | None = None
) -> Launch:
    home = office.desk.project.loaded.home
    return office.launches.start(office.command(*words), home, run, once and _once(once))


def _require_started(launch: Launch) -> Launch:
    """A command that ends at once was refused, and has said why."""
    launch.wait_for_end(_PATIENCE)
    if launch.is_refused and launch.text.startswith("error: "):
        raise RunError(launch.text.removeprefix("error: ").strip())
    return launch


def _place(launch: Launch) -> str:
    return f"/starts/{quote(launch.key)}" if launch.run is None else f"/runs/{quote(launch.run)}"


def _once(key: str) -> str:
    """The key of a form, made when it was shown: sent twice, it starts nothing twice."""
    if not (key.isascii() and key.isalnum() and 16 <= len(key) <= 64):
        raise RequestError("the form is not whole", fix="load the page again")
    return key


def _rate(text: str) -> int | None:
    plain = text.strip().replace(",", "").replace("_", "")
    if plain == "off":
        return None
    if not plain.isdecimal() or not int(plain):
        raise RequestError(
            f"{text!r} is not a number of rows per second", fix="write for example 5000, or off"
        )
    return int(plain)
