import os
import signal

from tidemill.runtime.driving.signals import STOPPING, on_signals


def test_a_closed_terminal_stops_a_run_unless_it_was_started_with_nohup() -> None:
    heard: list[int] = []
    before = signal.getsignal(signal.SIGHUP)
    try:
        with on_signals(lambda number, _: heard.append(number), *STOPPING):
            os.kill(os.getpid(), signal.SIGHUP)
        assert heard == [signal.SIGHUP]
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        with on_signals(lambda number, _: heard.append(number), *STOPPING):
            os.kill(os.getpid(), signal.SIGHUP)
            os.kill(os.getpid(), signal.SIGTERM)
        assert heard == [signal.SIGHUP, signal.SIGTERM]
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
