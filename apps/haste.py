"""An app in a hurry: a copy in which every length of time is divided by the same number.

``python -m apps.haste sessions FOLDER --speed 1200``, at the root of the repository. Lateness, skew
and slices in the YAML, gaps and windows in the code: an hour is three seconds then, and nothing
else is different. What is about the real clock (``slack``, ``trigger``) stays as it is.
"""

import argparse
import re
from datetime import timedelta
from pathlib import Path

from tidemill.errors import ConfigError
from tidemill.types import parse_duration

APPS = Path(__file__).parent
_IN_CODE = re.compile(r'"(\d+ ?[a-z]+)"')
_IN_YAML = re.compile(
    r"\b(lateness|skew|max_misalignment|warm_up|look_ahead): (\d+ ?[a-z]+(?: \d+ ?[a-z]+)*)"
)


def copy_app(app: str, folder: Path, speed: int) -> None:
    """Write the app's YAML and code into the folder, in a hurry."""
    folder.mkdir(parents=True, exist_ok=True)
    code = (APPS / app / "pipelines.py").read_text("utf-8")
    text = (APPS / app / "tidemill.yaml").read_text("utf-8")
    code = _IN_CODE.sub(lambda found: f'"{_divided(found[1], speed)}"', code)
    text = _IN_YAML.sub(lambda found: f"{found[1]}: {_divided(found[2], speed)}", text)
    (folder / "pipelines.py").write_text(code, "utf-8")
    (folder / "tidemill.yaml").write_text(text, "utf-8")


def _divided(text: str, speed: int) -> str:
    try:
        length = parse_duration(text)
    except ConfigError:
        return text  # not a duration
    millis, rest = divmod(length, timedelta(milliseconds=1) * speed)
    if rest:
        raise SystemExit(f"{text} is not a whole number of milliseconds at a speed of {speed}")
    return f"{millis} milliseconds"


def main() -> None:
    parser = argparse.ArgumentParser(description="Copy an app with all its durations divided.")
    parser.add_argument("app", choices=["playback", "sessions", "rmi"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--speed", type=int, default=1_200)
    given = parser.parse_args()
    copy_app(given.app, given.folder, given.speed)


if __name__ == "__main__":
    main()
