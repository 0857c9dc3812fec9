"""A payment that survives kill -9, and is not made twice.

    python examples/payment.py

An agent buys three tickets. Each time its process is killed: before the bank has the payment, after that, and before
the commit. Another process runs the same task again. The bank is a file with a line for each payment.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from versioned_state import Disk, Happened, Repository, Versioned, current_state, effect, effects, task

MOMENTS = ("before the bank", "after the bank", "before the commit")


class Bank:
    """The outside world: what was paid cannot be taken back."""

    def __init__(self, book: Path, killed: str) -> None:
        self.book = book
        self.killed = killed

    def pay(self, ticket: str) -> str:
        self.die("before the bank")
        with self.book.open("a") as book:
            book.write(f"{ticket}\n")
        self.die("after the bank")
        return f"receipt for {ticket}"

    def find(self, _key: str, ticket: str) -> Happened | bool:
        """Whether a payment was made: asked only if a process died between its beginning and its end."""
        return Happened(f"receipt for {ticket}, found at the bank") if ticket in self.payments() else False

    def payments(self) -> list[str]:
        return self.book.read_text().splitlines() if self.book.exists() else []

    def die(self, moment: str) -> None:
        if self.killed == moment:
            os.kill(os.getpid(), signal.SIGKILL)


@task
def buy(ticket: str, bank: Bank) -> str:
    state = current_state()
    receipt = effect(f"pay:{ticket}", bank.pay, ticket, check=bank.find)
    state[ticket] = receipt
    bank.die("before the commit")
    return receipt


def agent(folder: Path, ticket: str, killed: str) -> None:
    """One process of the agent."""
    with Disk(folder / "store") as store:
        print("  ", buy(ticket, Bank(folder / "bank", killed), state=Versioned(store)))


def run(*arguments: object) -> int:
    """Run the agent in a process of its own; how it ended."""
    return subprocess.run([sys.executable, __file__, *map(str, arguments)], check=False).returncode


def main(folder: Path) -> None:
    for number, moment in enumerate(MOMENTS, 1):
        ticket = f"trip{number}"
        print(f"{ticket}: killed {moment}", flush=True)
        assert run(folder, ticket, moment) == -signal.SIGKILL
        assert run(folder, ticket, "") == 0
    payments = Bank(folder / "bank", "").payments()
    print("the bank has", payments)
    assert payments == ["trip1", "trip2", "trip3"]
    with Repository(Disk(folder / "store")) as repository:
        assert all(record.status == "done" for record in effects(repository))
        print("the log has", [commit.message for commit in repository.log()])


if __name__ == "__main__":
    if len(sys.argv) > 1:
        agent(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
    else:
        with tempfile.TemporaryDirectory() as scratch:
            main(Path(scratch))
