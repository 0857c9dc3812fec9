"""``vstate``, the command line: the one layer that meets the terminal, the environment and the home directory.

A front door: it imports the engine, and nothing imports it. The root of the repository links here for readers.

    main              the group of all commands, errors, exit codes
    log, show, …      a file for each command; import_ with importing/, demo with trip_agent
    settings, store   the options that every command takes; which store, and how it is opened
    current, handle   the branch that a command works on; a state on it, for the commands that move it
    conflicts, words  what settles conflicts, and how they show; changes word by word
    hints             what an error says in a terminal, where there are no calls
    text, place       commits, changes and values as lines; [REV:]PATH
    output, pager     where lines go: escaped, coloured, paged, or as JSON
"""

if __name__ == "cli":
    raise ImportError("import versioned_state.cli, not cli")
