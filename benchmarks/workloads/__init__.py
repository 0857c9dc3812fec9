"""The workloads by name, in the order in which they run.

To add one: a module with a ``WORKLOADS`` tuple, and its name here.
"""

from benchmarks.workloads import (
    append,
    array,
    backends,
    contention,
    growth,
    history,
    keys,
    memory,
    open_read,
    plot,
    power,
    replay,
    typed,
)
from benchmarks.workloads.base import Workload

WORKLOADS: dict[str, Workload] = {
    workload.name: workload
    for module in (
        replay,
        append,
        keys,
        array,
        open_read,
        history,
        contention,
        power,
        typed,
        backends,
        growth,
        memory,
        plot,
    )
    for workload in module.WORKLOADS
}
