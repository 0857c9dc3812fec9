"""Side-by-side benchmarks of this library and of the tools people use instead of it.

``python -m benchmarks`` from the root of the project runs them. A *side* (``sides/``, one file each) is a tool driven
as its own documentation says; a *workload* (``workloads/``, one module each) asks the same work of every side. Nothing
here is part of the installed package.
"""
