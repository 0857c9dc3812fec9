"""The cost of ``vstate ui`` over a large store: ``python -m benchmarks.page --sessions 100000 --rounds 100000``.

A row for each page: the CPU of the request, in this process, after one that warms it up, and the bytes of the answer.
With ``--chromium`` the time to the first paint too. The acceptance of the page is 300 ms, 1 MiB and 1 s.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import quote

from benchmarks import data
from tests.support import chromium
from tests.support.page import Site
from versioned_state import Disk, Repository, Versioned

MOST_MS, MOST_BYTES = 300, 1 << 20


def build(folder: Path, sessions: int, rounds: int) -> Repository:
    """A store with one session of many rounds, and many sessions of one."""
    repository = Repository(Disk(folder))
    messages = data.sample().messages(1000)
    state = Versioned(repository, author="agent")
    state["messages"] = []
    state["plan"] = ["never changed since"] * 50
    for number in range(rounds):
        state.sequence("messages").append(messages[number % len(messages)])
        state["n"] = number
        state.commit(f"round {number}", meta={"step": number})
    first = repository.commit("main~0")
    for number in range(sessions):
        repository.branches.create(f"user{number % 997}/session-{number:06}", first)
    side = state.fork("what-if")
    side["n"] = -1
    side.commit("what if")
    return repository


def pages(repository: Repository, rounds: int) -> dict[str, str]:
    """A page of each kind, and those that are likely to be slow."""
    head = repository.branches["main"]
    middle, first = repository.commit(f"main~{rounds // 2}"), repository.commit(f"main~{rounds - 1}")
    found = {
        "sessions by change": "/",
        "sessions by name": "/?by=name",
        "sessions of a user": "/?prefix=user42/",
        "search of names": "/?q=session-00001",
        "search that finds none": "/?q=nothing-like-that",
        "sessions of a meta": "/?where=step%3D7",
        "log": "/b/main",
        "log of the middle": f"/b/main?after={middle.id}",
        "jump to a date": "/b/main?to=2999-01-01",
        "jump to a round": f"/b/main?to={rounds // 3 + 1}",
        "compare": f"/compare/main/{quote('what-if', safe='')}",
        "diff over half of all": f"/diff/{middle.id}..{head.id}",
        "diff over all": f"/diff/{first.id}..{head.id}",
        "history": f"/history/{head.id}?path=n",
        "blame": f"/blame/{head.id}?path=messages",
        "blame of an old value": f"/blame/{head.id}?path=plan",
        "blame of the state": f"/blame/{head.id}",
        "history of an old value": f"/history/{head.id}?path=plan",
        "chat": f"/chat/{head.id}",
        "events": f"/events/{head.id}",
        "search": f"/search/{head.id}?q=flight",
        "search that goes through all": f"/search/{head.id}?q=nothing-like-that",
        "state": f"/c/{head.id}/state",
        "list": f"/c/{head.id}/state?path=messages",
    }
    return found | {"commit": f"/c/{head.id}", "commit of the middle": f"/c/{middle.id}"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    parser.add_argument("--sessions", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--store", type=Path, help="build the store here, or take the one that is there")
    parser.add_argument("--chromium", action="store_true", help="measure the first paint too")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = options.store or Path(folder) / "store"
        began = time.perf_counter()
        repository = Repository(Disk(place)) if place.exists() else build(place, options.sessions, options.rounds)
        print(f"{options.sessions:,} sessions, {options.rounds:,} rounds, built in {time.perf_counter() - began:.0f} s")
        site = Site(repository).sign_in()
        paints = _paints(repository, options.rounds) if options.chromium else {}
        missed = 0
        for name, path in pages(repository, options.rounds).items():
            site.ask("GET", path)
            began = time.process_time()
            answer = site.ask("GET", path)
            ms, size = (time.process_time() - began) * 1000, len(answer.content)
            late = ms > MOST_MS or size > MOST_BYTES or answer.status_code >= 400
            missed += late
            paint = f"{paints[name]:6.0f} ms" if name in paints else ""
            print(f"{name:26} {answer.status_code} {ms:7.1f} ms {size:9,} bytes {paint} {'MISSED' if late else ''}")
        repository.close()
    return 1 if missed else 0


_PAINT = """() => new Promise((resolve) => {
    const look = () => {
        const [paint] = performance.getEntriesByName("first-contentful-paint");
        paint ? resolve(paint.startTime) : requestAnimationFrame(look);
    };
    look();
})"""


def _paints(repository: Repository, rounds: int) -> dict[str, float]:
    """The first contentful paint of each page, in milliseconds."""
    from playwright.sync_api import sync_playwright

    with chromium.served(repository) as (address, link), sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium.find(), args=chromium.ARGUMENTS)
        page = browser.new_page()
        page.goto(link)
        found = {}
        for name, path in pages(repository, rounds).items():
            page.goto(address + path)
            found[name] = page.evaluate(_PAINT)
        browser.close()
    return found


if __name__ == "__main__":
    sys.exit(main())
