"""``python -m apps.sessions.produce``, at the root of the repository: the app's log to Kafka."""

from apps.playback.produce import run
from apps.sessions.generate import SCHEMAS, make_hours

if __name__ == "__main__":
    run("sessions", list(SCHEMAS), make_hours)
