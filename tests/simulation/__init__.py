"""A deterministic simulation of several processes over one store and one clock: one seed is one run.

``python -m tests.simulation SEED…`` runs seeds and shows the steps of one that fails; ``CONTRIBUTING.md`` says how to
read them.
"""
