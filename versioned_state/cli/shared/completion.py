"""Shell completion: the choices for an argument that is being typed. Layer: cli.

The engine is imported when the shell asks. Whatever is wrong with the store, the shell sees no traceback between two
keys, and no character that would drive the terminal.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, suppress
from itertools import islice
from typing import TYPE_CHECKING, Final, Protocol

import click
from click.shell_completion import BashComplete, CompletionItem, add_completion_class, split_arg_string

if TYPE_CHECKING:
    from versioned_state.repository.repository import Repository


class ReadsStore(Protocol):
    """The settings of a command, as far as they are used here."""

    def reading(self) -> AbstractContextManager[Repository]: ...


_MOST: Final = 1000
"""Names or keys that are offered: a shell lists no more, and a large store is not read to its end."""


# bash splits words at the characters of COMP_WORDBREAKS, so main:budget is three words to it, of which it replaces the
# last one.
_BASH: Final = r"""
%(complete_func)s() {
    local IFS=$'\n' response completion type value word kept current

    word="${COMP_LINE:0:COMP_POINT}"
    word="${word##*[[:blank:]]}"
    current="${COMP_WORDS[COMP_CWORD]}"
    if [[ $current == [:=@] && $COMP_WORDBREAKS == *"$current"* ]]; then
        kept="$word"
    else
        kept="${word%%"$current"}"
    fi
    response=$(env COMP_WORDS="${COMP_LINE:0:COMP_POINT}" %(complete_var)s=bash_complete $1)

    for completion in $response; do
        IFS=',' read -r type value <<< "$completion"

        if [[ $type == 'dir' ]]; then
            COMPREPLY=()
            compopt -o dirnames
        elif [[ $type == 'file' ]]; then
            COMPREPLY=()
            compopt -o default
        elif [[ $type == 'plain' ]]; then
            COMPREPLY+=("${value#"$kept"}")
            [[ $value == *: ]] && compopt -o nospace
        fi
    done

    return 0
}

complete -o nosort -F %(complete_func)s %(prog_name)s
"""


@add_completion_class
class Bash(BashComplete):
    """Completion for bash, by the whole line instead of bash's words."""

    source_template = _BASH

    def get_completion_args(self) -> tuple[list[str], str]:
        line = os.environ["COMP_WORDS"]
        _, *words = split_arg_string(line)
        incomplete = words.pop() if words and not line[-1].isspace() else ""
        return words, incomplete


def store(_context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete folders, and keep ``disk:`` or ``diskcache:`` before them."""
    return [CompletionItem(incomplete, type="dir")]


def file(_context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete files."""
    return [CompletionItem(incomplete, type="file")]


def branch(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Complete branches."""
    return _ask(context, lambda repository: _starting(repository.branches, incomplete))


def tag(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Complete tags."""
    return _ask(context, lambda repository: _starting(repository.tags, incomplete))


def command(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Complete commands."""
    root = context.find_root()
    names = root.command.list_commands(root) if isinstance(root.command, click.Group) else []
    return [name for name in names if name.startswith(incomplete)]


def revision(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Complete branches and tags, in a range the end that is being typed."""
    before, dots, name = incomplete.rpartition("..")
    return [before + dots + found for found in _ask(context, lambda repository: _names(repository, name))]


def path(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Complete paths in the current branch's state, or in the revision that the command line names."""
    rev = context.params.get("rev") or "HEAD"
    return _ask(context, lambda repository: _paths(repository, str(rev), incomplete))


def task(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Complete the tasks whose calls made the last commits."""
    from versioned_state.cli.shared.names import task_names

    return _ask(context, lambda repository: _starting(sorted(task_names(repository.log("HEAD"))), incomplete))


def event_class(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Complete the classes of the last events."""
    from versioned_state.cli.shared.names import class_names

    return _ask(
        context,
        lambda repository: _starting(sorted(class_names(repository.snapshot("HEAD", describe=True))), incomplete),
    )


def revision_or_place(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Complete branches and tags, or after ``REV:`` the paths there."""
    return _paths_in_revision(context, incomplete) or revision(context, parameter, incomplete)


def path_or_place(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Complete paths of the current branch, and branches and tags with a colon, or after ``REV:`` the paths there."""

    def find(repository: Repository) -> list[str]:
        return [*_paths(repository, "HEAD", incomplete), *(f"{name}:" for name in _names(repository, incomplete))]

    return _paths_in_revision(context, incomplete) or _ask(context, find)


def _paths_in_revision(context: click.Context, incomplete: str) -> list[str]:
    from versioned_state.cli.shared.place import parse_place

    rev, prefix = parse_place(incomplete)
    if rev is None:
        return []
    return [f"{rev}:{found}" for found in _ask(context, lambda repository: _paths(repository, rev, prefix))]


def _names(repository: Repository, prefix: str) -> list[str]:
    return [*_starting(repository.branches, prefix), *_starting(repository.tags, prefix)]


def _starting(names: Iterable[str], prefix: str) -> Iterator[str]:
    return (name for name in names if name.startswith(prefix))


def _paths(repository: Repository, rev: str, prefix: str) -> Iterator[str]:
    """Yield the paths one step below the last whole path typed: ``prefs.th`` offers the entries of ``prefs``."""
    from versioned_state.cli.shared.place import paths_below
    from versioned_state.errors import StateError

    snapshot = repository.snapshot(rev, describe=True)
    above = prefix[: max(prefix.rfind("."), prefix.rfind("["), 0)]
    key = prefix if prefix.isidentifier() else ""  # a plain key: those that begin otherwise need not be read
    with suppress(StateError):
        yield from _starting((str(found) for found in paths_below(snapshot, above, key)), prefix)


def _ask(context: click.Context, find: Callable[[Repository], Iterable[str]]) -> list[str]:
    try:
        settings: ReadsStore = context.find_root().obj
        with settings.reading() as repository:
            return [name for name in islice(find(repository), _MOST) if name.isprintable()]
    except Exception:  # noqa: BLE001 - see above
        return []
