"""For tests that interrupt processes: a test run in the background passes on that it ignores
interrupts, and Python would then never raise KeyboardInterrupt."""

import signal


def heeded() -> None:
    """As ``preexec_fn`` of a process: interrupts reach it, wherever the tests run."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
