"""Let tests interrupt processes.

A background process ignores interrupts, and so do its children: Python would never raise
KeyboardInterrupt.
"""

import signal


def heeded() -> None:
    """``preexec_fn`` of a process: enable interrupts."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
