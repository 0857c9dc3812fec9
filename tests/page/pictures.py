"""The two pictures of the page in README.md: ``python -m tests.page.pictures`` writes them anew, in a real Chromium.

What they show is a real conversation with a tool-calling agent (``benchmarks/conversations``), a commit a message, and
a what-if.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any, Final

from playwright.sync_api import sync_playwright

from benchmarks import data
from tests.support import chromium
from versioned_state import Memory, Repository, Versioned

FOLDER: Final = Path(__file__).parents[2] / "docs"
SIZE: Final[Any] = {"width": 1100, "height": 620}
_FIRST: Final = 1_763_900_000_000_000


def conversation() -> Repository:
    """A session of a booking agent, with another branch from its middle that was merged, and one that was not."""
    clock = itertools.count(_FIRST, 7_300_000)
    repository = Repository(Memory(), clock=lambda: next(clock), author="booking-agent")
    state = Versioned(repository, branch="mia_li_3668/seattle")
    state["messages"] = []
    state["budget"] = {"limit": 400, "spent": 0}
    state["plan"] = ["find a flight"]
    what_if = None
    for number, message in enumerate(data.sample().conversations[0][:18]):
        state["messages"].append(message)
        state.commit(_title(message), meta={"round": number})
        if number == 14:
            what_if = state.fork("mia_li_3668/by-train")
            what_if["plan"].append("compare with the train")
            what_if.commit("what if: by train?", author="planner")
            what_if["budget"]["limit"] = 250
            what_if.commit("a train costs less", author="planner")
    assert what_if is not None
    state["plan"].append("pay with certificates first")
    state["budget"]["spent"] = 152
    state.commit("plan: certificates first, then the card", author="planner")
    state.merge("mia_li_3668/by-train", policies={"plan": "append"})
    state["plan"][0] = "book the flight at 11:00"
    state["messages"][5]["content"] += " Please book the cheapest one that leaves after 11:00."
    state.commit("the traveller has chosen", author="mia_li_3668")
    return repository


def _title(message: dict[str, Any]) -> str:
    text = " ".join(str(message.get("content") or "calls a tool").split())
    return f"{message['role']}: {text[:64]}"


def main() -> None:
    repository = conversation()
    program = chromium.find()
    assert program is not None, f"there is no Chromium: {chromium.HOW}"
    branch = "mia_li_3668/seattle"
    pages = {"page-log": f"/b/{branch}", "page-round": f"/c/{repository.commit(branch).id}"}
    with chromium.served(repository) as (address, link), sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=chromium.ARGUMENTS)
        page = browser.new_context(viewport=SIZE, color_scheme="light").new_page()
        page.goto(link)
        for name, path in pages.items():
            page.goto(address + path)
            page.wait_for_timeout(500)  # a log follows its branch, so the network never rests
            page.screenshot(path=FOLDER / f"{name}.png")
        browser.close()


if __name__ == "__main__":
    main()
