"""Whether a call is still running is found out beside other threads, and beside the collector."""

from __future__ import annotations

import gc
import sys

from tests.support.processes import run
from versioned_state.storage.call_lock import is_running

LOOKING = """
    import faulthandler, gc, threading, time
    from versioned_state.storage.call_lock import is_running

    faulthandler.dump_traceback_later(100, exit=True)

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

WALKING = """
    import gc, random, sys, threading, time
    from versioned_state.storage.call_lock import is_running

    class Cycle:
        def __init__(self):
            self.me = self

        def __del__(self):
            time.sleep(0.0001)  # another thread goes on

    def deep(depth):
        return deep(depth - 1) if depth else wide(8)

    def wide(depth):  # where this frame lies, the pointers of others lay
        a = b = c = d = e = f = g = h = i = j = k = l = m = o = p = q = r = s = t = u = v = "text"
        return wide(depth - 1) if depth else None

    sys.setswitchinterval(1e-6)

    def work():
        while not done:
            deep(random.randrange(40))
            wide(random.randrange(20))

    done = False
    thread = threading.Thread(target=work)
    thread.start()
    try:
        for _ in range(600):
            gc.disable()
            for _ in range(3):
                Cycle()
            gc.set_threshold(random.randrange(4, 60))
            gc.enable()
            is_running(None)
    finally:
        done = True
        thread.join()
"""


def test_threads_that_look_while_the_collector_runs_do_not_wait_for_each_other():
    """CPython 3.11 may collect while it lists the stacks: a deadlock, if a finalizer lets another thread go on."""
    run(LOOKING)


def test_the_stack_of_a_thread_that_goes_on_meanwhile_is_walked_to_its_end():
    """CPython 3.11 may collect while it makes a frame's object, whose call may have ended after a finalizer."""
    run(WALKING)


def test_a_collector_that_is_off_stays_off(without_collector):
    assert is_running(sys._getframe())
    assert not gc.isenabled()


def test_the_collector_goes_on_after_a_look():
    assert is_running(sys._getframe())
    assert gc.isenabled()
