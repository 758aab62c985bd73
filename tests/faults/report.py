"""The campaign's section of docs/reliability.md: each combination with its result."""

import re

from tests.faults.campaign import Outcome, all_combinations

TITLE = "Faults at every step of a batch"
_ABOUT = """\
Every line is one run and one fault, at the named step of one batch: in a backfill (history), in
the first live batch of a run that comes from history (switch; its decision is the switch itself),
or in a later live batch (live). *kill -9* and *lost answer* come after the step was done, as does
*conflict that landed*: the catalog has made the commit and answers that another writer was
faster. *Restored folder*: the run's folder is copied at the step, the run goes on for some
batches, and the copy is put back. *Clock*: the clock jumps at the step, is still wrong when the
run is stopped and resumed, and then is right again. *Zombie*: the driver hangs in front of the
step, another one takes the run over and brings it to its end, then the first one wakes up: it
must end with an error and change nothing. The pipeline is a fold with two outputs, or Spark's own
window. Output, late and dead rows are compared with a count over the log in plain Python. A run
may stop with an error; then `resume`, or the command that the error names, must bring it to the
same rows. Faults that a step cannot have are left out (a conflict where nobody else can write, a
full disk where nothing is written)."""


def line(outcome: Outcome) -> str:
    """One combination's."""
    made, story = outcome.combination, "; ".join(outcome.story)
    fault = f"clock {made.shift // 3_600:+d} h" if made.shift else made.fault
    verdict = "equal" if outcome.is_good else f"**DIFFERENT**: {_plain(str(outcome.difference))}"
    return (
        f"| {made.number} | {made.mode} | {made.step.name} | {fault} | {made.catalog} | "
        f"{made.pipeline} | {_plain(story)} | {outcome.seconds:.0f} s | {verdict} |"
    )


def section(lines: dict[int, str], when: str) -> str:
    """All lines, by the numbers of their combinations."""
    good, known = sum("**DIFFERENT**" not in found for found in lines.values()), all_combinations()
    count = f"**{good} of {len(lines)} equal** ({when}; {len(known)} combinations have a meaning)."
    head = [
        f"## {TITLE}",
        "",
        f"{_ABOUT} {count}",
        "",
        "| no. | mode | step | fault | catalog | pipeline | what happened | took | result |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    return "\n".join([*head, *(lines[number] for number in sorted(lines)), ""])


def _plain(text: str) -> str:
    """One line for a table: without this machine's paths, ids and the table's own sign."""
    first = " ".join(text.partition("\n")[0].split()).replace("|", "/")
    first = re.sub(r"(file://)?/(?:tmp|work|home|root|var)/[^\s:'\"]*/", "…/", first)
    first = re.sub(r"\d{8}_\d{6}_[0-9a-f]{4}", "RUN", first)
    first = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "…", first)
    return first if len(first) <= 300 else f"{first[:300]} …"
