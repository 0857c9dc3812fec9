"""``vstate``, the command line: the one layer that meets the terminal, the environment and the home directory.

A front door: it imports the engine, and nothing imports it. The root of the repository links here for readers.

    main         the group of all commands; how errors and exit codes end it
    commands/    a file for each command, and the catalog that imports one when it is asked for
    shared/      what commands share: options, the store, the current branch, REV:PATH, conflicts, hints, completion
    render/      commits, changes and values as lines that fit the terminal, in colour, paged, or as JSON
    importing/   files of JSON as commits
    demo/        an agent to look at
"""

if __name__ == "cli":
    raise ImportError("import versioned_state.cli, not cli")
