"""``python -m apps.rmi.produce``, at the root of the repository: the app's log to Kafka."""

from apps.playback.produce import run
from apps.rmi.generate import SCHEMAS, make_hours

if __name__ == "__main__":
    run("rmi", list(SCHEMAS), make_hours)
