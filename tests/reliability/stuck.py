"""A driver whose commit of a given batch waits for ever, and whose patience is short.

``python -m tests.reliability.stuck BATCH <tidemill's arguments>``; a batch of -1 never waits.
"""

import sys
import threading
from typing import Any

from tidemill.cli.main import main
from tidemill.runtime.driving import committer, watchdog


def arm(batch: int) -> None:
    commit = committer.Committer.commit

    def waiting(self: Any, frame: Any, number: int) -> Any:
        if number == batch:
            (self.folder.path / "stuck").touch()
            threading.Event().wait()
        return commit(self, frame, number)

    committer.Committer.commit = waiting  # type: ignore[method-assign]
    begin = watchdog.Patience.__init__

    def short(self: watchdog.Patience) -> None:
        begin(self, still=4.0, interrupted=4.0)

    watchdog.Patience.__init__ = short  # type: ignore[method-assign,assignment]


if __name__ == "__main__":
    arm(int(sys.argv[1]))
    sys.argv = ["tidemill", *sys.argv[2:]]
    main()
