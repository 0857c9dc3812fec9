"""Every command of ``vstate``: the section of the help that lists it, its module and its summary. Layer: cli.

A module holds one command, in a function of the module's own name. Nothing is imported from a module until its command
is asked for, so the summaries of ``vstate --help`` are here.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import click

_SECTIONS: Final[dict[str, dict[str, tuple[str, str]]]] = {
    "Look at what an agent knew": {
        "log": ("commands.read.log", "Show commits, newest first."),
        "show": ("commands.read.show", "Show a commit and its changes, or a value."),
        "diff": ("commands.read.diff", "Show the changes between two commits, by path."),
        "get": ("commands.read.get", "Show one value."),
        "keys": ("commands.read.keys", "List the keys of a state, or of a value in it."),
        "files": ("commands.read.files", "List the files that a commit has of a workspace."),
        "blame": ("commands.read.blame", "Show which commit each part of a value comes from."),
        "history": ("commands.read.history", "Show the commits that changed a path."),
        "grep": ("commands.read.grep", "Search the strings of a state."),
        "merge-base": ("commands.read.merge_base", "Show the commit at which two branches parted."),
        "bisect": ("commands.read.bisect", "Find the commit where something went wrong."),
        "events": ("commands.read.events", "Show the events of tasks."),
        "view": ("commands.read.view", "Show a state at a glance, newest changes first."),
        "ui": ("commands.read.ui", "Look at history in a browser."),
        "export": ("commands.read.export", "Write a state as JSON."),
    },
    "Change a branch": {
        "set": ("commands.change.set_", "Set one value and commit it."),
        "rm": ("commands.change.rm", "Remove values and commit that."),
        "import": ("commands.change.import_", "Turn a file of conversations or states into commits."),
        "apply": ("commands.change.apply", "Commit the changes of a patch."),
        "restore": ("commands.change.restore", "Bring one value back from another commit, or files into a folder."),
        "merge": ("commands.change.merge", "Merge another branch into the current one."),
        "cherry-pick": ("commands.change.cherry_pick", "Repeat the changes of other commits here."),
        "revert": ("commands.change.revert", "Commit the opposite of earlier changes."),
        "rebase": ("commands.change.rebase", "Repeat the commits of a branch on top of another."),
        "squash": ("commands.change.squash", "Combine several commits into one."),
        "migrate": ("commands.change.migrate", "Bring branches to the newest version of their shape."),
        "reset": ("commands.change.reset", "Move the current branch to another commit."),
        "undo": ("commands.change.undo", "Take back the last move of the current branch."),
        "redo": ("commands.change.redo", "Repeat a move that undo took back."),
    },
    "Branches, tags and signatures": {
        "branch": ("commands.names.branch", "List, create, rename or delete branches."),
        "switch": ("commands.names.switch", "Choose the current branch."),
        "tag": ("commands.names.tag", "List, create or delete tags."),
        "note": ("commands.names.note", "Show or change the note of a commit."),
        "reflog": ("commands.names.reflog", "Show where a branch has pointed."),
        "policy": ("commands.names.policy", "Show or set how conflicts are resolved, by path."),
        "sign": ("commands.names.sign", "Sign the current branch and all its history."),
        "verify": ("commands.names.verify", "Check the signatures of history."),
    },
    "Look after a store": {
        "init": ("commands.store.init", "Create a store."),
        "status": ("commands.read.status", "Show the size, branches and tags of a store."),
        "stats": ("commands.read.stats", "Show what takes up space, by branch, path and commit."),
        "effects": ("commands.store.effects", "List effects, settle or forget them."),
        "fsck": ("commands.store.fsck", "Check every object, ref and record."),
        "gc": ("commands.store.gc", "Delete objects that nothing refers to."),
        "expire": ("commands.store.expire", "Delete branches whose time to live is over."),
        "prune": ("commands.store.prune", "Prune old history."),
        "purge": ("commands.store.purge", "Erase a path from all of history."),
        "upgrade": ("commands.store.upgrade", "Bring a store to the newest format version."),
        "serve": ("commands.store.serve", "Offer states, histories and memories over HTTP."),
        "mcp": ("commands.store.mcp", "Offer tools for a model, by MCP."),
        "demo": ("demo.demo", "Watch a small agent, and look at its memory."),
        "help": ("commands.store.help_", "Show how a command is used."),
        "completion": ("commands.store.completion", "Print the completion script of a shell."),
    },
}

ELSEWHERE: Final[dict[str, str]] = {
    "add": "nothing is staged: vstate set PATH VALUE commits at once",
    "cat": "vstate get [REV:]PATH shows a value",
    "checkout": (
        "vstate switch BRANCH chooses a branch; vstate restore REV:PATH brings a value back; "
        "vstate get REV:PATH only shows it"
    ),
    "clone": "a store is a folder or a database: copy it, or name it with --store",
    "commit": "nothing is staged: vstate set PATH VALUE commits at once, and so do vstate import and vstate apply",
    "config": "options and variables configure vstate: vstate --help lists them",
    "fetch": "a store is shared in place: name it with --store",
    "ls": (
        "vstate files lists the files of a workspace; vstate keys [REV:]PATH lists keys; "
        "vstate branch and vstate tag list names"
    ),
    "pull": "a store is shared in place: name it with --store",
    "push": "a store is shared in place: name it with --store",
    "put": "vstate set PATH VALUE commits a value",
    "stash": "nothing is staged; vstate branch NAME keeps a commit for later",
}
"""Commands of git, or of a shell, that ``vstate`` does not have, each with the way to do the same."""


def names() -> list[str]:
    """Return the names of the commands in the order of the help."""
    return [name for commands in _SECTIONS.values() for name in commands]


def sections() -> list[tuple[str, list[tuple[str, str]]]]:
    """Return the sections of the help: a title, and each command with its summary."""
    return [
        (title, [(name, summary) for name, (_, summary) in commands.items()]) for title, commands in _SECTIONS.items()
    ]


def load(name: str) -> click.Command | None:
    """Import the module of a command and return the command, or None if there is no such command."""
    module = next((commands[name][0] for commands in _SECTIONS.values() if name in commands), None)
    if module is None:
        return None
    command: click.Command = getattr(import_module(f"versioned_state.cli.{module}"), module.rpartition(".")[2])
    return command
