"""Commands that errors tell a user to give."""

from tidemill.planning.manifest import Manifest
from tidemill.types import from_micros, show_instant


def start_again(manifest: Manifest) -> str:
    """The two commands that give a run up and begin another one over the same range."""
    run, name, (start, end) = manifest.run, manifest.pipeline, manifest.times.output
    begin = f"--from {show_instant(from_micros(start))}"
    if manifest.times.ends:
        again = f"tidemill backfill {name} {begin} --to {show_instant(from_micros(end))}"
    else:
        again = f"tidemill run {name} {begin}"
    return f"'tidemill cancel {run}', then '{again}'"
