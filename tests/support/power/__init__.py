"""Simulated power cuts: a recorder of the calls of a process, and a disk that loses what was not synced."""
