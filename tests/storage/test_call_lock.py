"""Whether a call is still running is found out beside other threads, and beside the collector."""

from __future__ import annotations

import gc
import subprocess
import sys
import textwrap

from versioned_state.storage.call_lock import is_running

LOOKING = textwrap.dedent(
    """
    import faulthandler, gc, threading, time
    from versioned_state.storage.call_lock import is_running

    faulthandler.dump_traceback_later(60, exit=True)

    class Node:
        pass

    class Later:
        def __del__(self):
            time.sleep(0.0002)  # another thread goes on

    def leave_a_cycle():
        node = Node()
        node.me, node.later = node, Later()

    def look(number):
        for step in range(1500):
            leave_a_cycle()
            kept = [[] for _ in range((step * 7 + number) % 40)]
            is_running(None)

    gc.set_threshold(40)
    threads = [threading.Thread(target=look, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    """
)


def test_threads_that_look_while_the_collector_runs_do_not_wait_for_each_other():
    """CPython 3.11 lets the collector run while it lists the stacks: a deadlock, if a finalizer lets another thread go on."""
    run = subprocess.run([sys.executable, "-c", LOOKING], capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == 0, run.stderr[-2_000:]


def test_a_collector_that_is_off_stays_off(without_collector):
    assert is_running(sys._getframe())
    assert not gc.isenabled()


def test_the_collector_goes_on_after_a_look():
    assert is_running(sys._getframe())
    assert gc.isenabled()
