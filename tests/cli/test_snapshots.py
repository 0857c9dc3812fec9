"""The exact output of each command.

The expected texts are the files in ``snapshots/``. ``conftest.py`` describes how to renew them.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable

import pytest

from tests.support.command_line import SNAPSHOTS, Vstate
from tests.support.examples import MINUTE, START, Trip
from versioned_state.cli.render import text

pytestmark = pytest.mark.every_case

COMMANDS = {
    "log": "log",
    "log-oneline": "log --oneline",
    "log-stat": "log --stat",
    "log-oneline-stat": "log -n 2 --oneline --stat",
    "log-json": "log --json",
    "log-json-stat": "log -n 1 --json --stat",
    "log-limit": "log -n 1",
    "log-rev": "log idea~1",
    "log-range": "log main..idea",
    "log-range-open": "log v1.. --oneline",
    "log-range-json": "log ..merged --json",
    "log-range-graph": "log v1..merged --graph",
    "log-range-first-parent": "log v1..merged --first-parent --oneline",
    "log-range-path": "log main~3..merged --path budget --oneline",
    "log-range-nothing": "log merged..main",
    "log-all": "log --all --oneline",
    "log-merge": "log merged -n 3",
    "log-first-parent": "log merged --first-parent --oneline",
    "log-graph": "log merged --graph",
    "log-all-first-parent": "log --all --first-parent --oneline",
    "log-graph-all": "log --all --graph --oneline --stat",
    "log-graph-some": "log --all --graph --oneline --grep 'B|M|S'",
    "log-author": "log --author ^Bruna --oneline",
    "log-since": "log --since 2026-11-21T02:12 --until 2026-11-21T02:15 --all --oneline",
    "log-since-age": "log --since 98m --oneline",
    "log-message": "log --grep 'wants a' --oneline",
    "log-meta": "log --meta round=3 --meta tool=book --meta cost --oneline",
    "log-meta-any": "log --meta round=3 --meta round=1 --meta round=none --oneline",
    "log-meta-any-and-all": "log --meta round=3 --meta round=1 --meta tool --oneline",
    "log-path": "log --path budget --oneline --all",
    "log-path-namespace": "log --path @worker --oneline",
    "log-changed": "log -S 900 --oneline --all",
    "log-changed-text": "log -S 'AP 121' --json",
    "log-path-nowhere": "log --path budgte --oneline",
    "log-path-nowhere-below": "log --path budget.limits",
    "log-task-nowhere": "log --task book",
    "diff-path-nowhere": "diff main~1 main --path budgte",
    "log-nothing": "log -S nowhere",
    "grep": "grep -i 'lisbon|job|budget'",
    "grep-rev": "grep Lisbon main~3",
    "grep-lines": "grep '^b'",
    "grep-path": "grep a --path messages[1]",
    "grep-fixed": "grep -F . --path messages",
    "grep-names": "grep -l a",
    "grep-count": "grep -c a",
    "grep-long": "grep xx$",
    "grep-json": "grep a --json --path messages",
    "grep-nothing": "grep nowhere",
    "bisect-equals": "bisect main~3 main --equals budget.spent 98",
    "bisect-missing": "bisect main~2 HEAD --missing prefs.quiet",
    "bisect-json": "bisect main~2 HEAD --missing prefs.quiet --json",
    "bisect-skip": "bisect main~3 main --run 'grep -q 600 || exit 1; grep -q Nothing || exit 125'",
    "show": "show v1",
    "show-head": "show",
    "show-first": "show main~3",
    "show-merge": "show merged",
    "show-stat": "show v1 --stat",
    "show-full": "show v1 --full",
    "show-json": "show v1 --json",
    "diff": "diff",
    "diff-two": "diff main~3 idea",
    "diff-dots": "diff main~3..idea",
    "diff-dots-open": "diff v1..",
    "diff-dots-first": "diff ..idea --stat",
    "diff-backwards": "diff v1 main~3",
    "diff-path": "diff main~3 main --path budget",
    "diff-path-stat": "diff main~3 main --path messages --stat",
    "diff-same": "diff main main",
    "diff-full": "diff main~3 v1 --full",
    "diff-stat": "diff main~3 main --stat",
    "diff-stat-json": "diff main~3 main --stat --json",
    "diff-json": "diff main~3 v1 --json",
    "diff-exit-code": "diff --exit-code --stat",
    "get-text": "get notes",
    "get-text-json": "get notes --json",
    "get-dict": "get v1:budget",
    "get-list": "get v1:messages",
    "get-element": "get idea:messages[-1].role",
    "get-quoted": """get 'main:["user/1"].name'""",
    "get-namespace": "get @worker.job.done",
    "get-set": "get seen",
    "get-other": "get when --json",
    "get-whole": "get main~3:",
    "get-by-date": "get 'main@{2026-11-21T02:11:30}:prefs'",
    "keys": "keys",
    "keys-prefix": "keys main~3 m",
    "keys-json": "keys --json",
    "blame": "blame",
    "blame-list": "blame messages merged",
    "blame-last": "blame messages -n 2",
    "blame-range": "blame messages idea -L 1:2",
    "blame-lines": "blame notes",
    "blame-dict": "blame budget idea",
    "blame-value": "blame when",
    "blame-namespace": "blame @worker",
    "blame-json": "blame notes v1 --json -L -2:",
    "path-history": "history budget",
    "path-history-key": "history budget.limit idea",
    "path-history-element": "history messages[-1].content",
    "path-history-full": "history prefs --full -n 1",
    "path-history-oneline": "history notes --oneline",
    "path-history-json": "history prefs.quiet --json",
    "path-history-gone": "history prefs.quiet",
    "status": "status",
    "status-few": "status -n 1",
    "status-json": "status --json",
    "export": "export",
    "export-value": "export v1:prefs",
    "export-compact": "export idea --compact",
    "help": "--help",
    **{
        f"help-{name}": f"{name} --help"
        for name in (
            "log show diff get keys blame history status import export gc fsck prune purge stats demo completion "
            "set init"
        ).split()
    },
    "help-effects": "effects --help",
    "help-events": "events --help",
    "help-view": "view --help",
    "view": "view",
    "events": "events",
    "help-grep": "grep --help",
    "help-bisect": "bisect --help",
    "error-log-graph-json": "log --graph --json",
    "error-log-three-dots": "log main...idea",
    "error-log-range-all": "log --all main..idea",
    "error-log-range": "log main..mian",
    "error-range": "show main~1..main",
    "diff-three-dots": "diff main...idea",
    "error-diff-range": "diff main..idea main",
    "error-log-regex": "log --author '('",
    "error-log-since": "log --since someday",
    "error-log-path": "log --path messages[",
    "error-grep-regex": "grep '['",
    "error-grep-path": "grep a --path budgets",
    "error-bisect-condition": "bisect main~3",
    "error-bisect-two": "bisect main~3 --missing a --empty b",
    "error-bisect-path": "bisect main~3 --missing a --path b",
    "error-bisect-json": "bisect main~3 main --equals budget.spent x",
    "error-bisect-good": "bisect main~3 main --missing plan",
    "error-bisect-line": "bisect idea main --missing plan",
    "error-revision": "log mian",
    "error-reflog": "reflog mian",
    "error-id": "show 0123456789ab",
    "error-no-revision": "log '~'",
    "error-before": "show 'main@{2020-01-01}'",
    "error-no-choice": "completion",
    "error-age": "gc --expire tomorrow",
    "error-date": "show 'main@{someday}'",
    "error-steps": "diff main~9 main",
    "error-path": "get budgets.limit",
    "error-path-deep": "get budget.limits",
    "error-index": "get messages[9]",
    "error-inside-a-text": "get notes.line",
    "error-blame-path": "blame user/1",
    "error-blame-missing": "blame budget.limits",
    "error-blame-namespace": "blame @work",
    "error-blame-range": "blame messages -L 5",
    "error-blame-both": "blame messages -n 1 -L :1",
    "error-history-path": "history budgets",
    "error-history-index": "history messages[9]",
    "error-namespace": "get @worker.jobs",
    "error-path-syntax": "get messages[",
    "error-path-key": "get user/1",
    "error-raw": "get budget --raw",
    "error-raw-json": "get notes --raw --json",
    "error-command": "lgo",
    "error-option": "log --onelin",
    "error-number": "log -n -1",
    "error-missing": "get",
}


@pytest.mark.parametrize("name", COMMANDS)
def test_it_prints(
    name: str, vstate: Vstate, trip: Trip, snapshot: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(text, "now", lambda: START + 100 * MINUTE)
    command = COMMANDS[name]
    shown = vstate(*shlex.split(command), store=trip.path).shown(f"vstate {command}")
    snapshot(name, trip.tidy(without_sizes(shown)))


def without_sizes(shown: str) -> str:
    """Sizes and counts of objects are the storage's business, and tested there."""
    shown = re.sub(r"[\d.]+ KB", "N KB", re.sub(r"objects  \d+", "objects  N", shown))
    return re.sub(r'("(?:objects|bytes_\w+)": )\d+', r"\1N", shown)


def test_no_snapshot_is_left_over():
    others = {"demo"}  # of test_demo; test_history_commands looks after its own
    assert {file.stem for file in SNAPSHOTS.iterdir() if not file.stem.startswith("history-")} == set(COMMANDS) | others


@pytest.mark.parametrize(
    "name",
    [name for name, command in COMMANDS.items() if "--json" in command and not name.startswith(("help", "error"))],
)
def test_json_is_one_value_a_line(name: str, vstate: Vstate, trip: Trip):
    for line in vstate(*shlex.split(COMMANDS[name]), store=trip.path).stdout.splitlines():
        json.loads(line)
