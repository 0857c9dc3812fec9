"""``vstate``, the command line: the one layer that meets the terminal, the environment and the home directory.

A front door: it imports the engine, and nothing imports it. The root of the repository links here for readers.
"""

if __name__ == "cli":
    raise ImportError("import versioned_state.cli, not cli")
