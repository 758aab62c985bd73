"""How the JVMs of tests run: soon ended, so that compiling well costs more than it gives."""

import os

_SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def start_light() -> None:
    """For this process and those that it starts; what the user has set wins."""
    os.environ.setdefault("JDK_JAVA_OPTIONS", _SHORT_LIVED)
