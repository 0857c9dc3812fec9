"""An order as a state machine, with its events: what happened, in which order, and what the shop knew at the time.

Two workers take the order at once. One of them wins; the other learns it before anything is shipped twice.
"""

from __future__ import annotations

from versioned_state import EventSourced, Memory, StateMachine, TransitionEvent, Versioned, events, task
from versioned_state.errors import InvalidTransitionError

TRANSITIONS = {
    ("cart", "pay"): "paid",
    ("paid", "ship"): "shipped",
    ("paid", "refund"): "cancelled",
    ("shipped", "deliver"): "delivered",
    ("shipped", "return"): "returned",
    ("returned", "refund"): "cancelled",
}


def booked(books: dict[str, int], entry: dict[str, int]) -> dict[str, int]:
    """The books after one more entry. Nothing is ever overwritten: a refund is an entry too."""
    return {"balance": books["balance"] + entry["cents"], "entries": books["entries"] + 1}


class Order:
    """One order: the status is a state machine, and the money follows from its entries."""

    def __init__(self, state: Versioned) -> None:
        self.status = StateMachine(state, "status", initial="cart", transitions=TRANSITIONS)
        self.books = EventSourced(state, booked, initial={"balance": 0, "entries": 0}, key="entries")


@task
def pay(cents: int, state: Versioned) -> str:
    """Take the money."""
    order = Order(state)
    order.books.append({"cents": cents})
    return str(order.status.transition("pay"))


@task
def ship(carrier: str, state: Versioned) -> str:
    """Hand the parcel over. If the order cannot be shipped, nothing of this is kept."""
    state["carrier"] = carrier
    return str(Order(state).status.transition("ship"))


@task
def refund(state: Versioned) -> str:
    """Give the money back."""
    order = Order(state)
    order.books.append({"cents": -order.books.value["balance"]})
    return str(order.status.transition("refund"))


def main() -> None:
    """Sell one thing, take it back, and tell the story."""
    store = Memory()
    shop, warehouse = Versioned(store, author="shop"), Versioned(store, author="warehouse")
    print("paid:", pay(4990, state=shop))

    warehouse.refresh()
    print("shipped:", ship("DHL", state=warehouse))
    try:
        refund(state=shop)  # the shop has not seen that the parcel is on its way
    except InvalidTransitionError as error:
        print("not refunded:", error.what, "-", error.hint)

    shop.refresh()
    Order(shop).status.transition("return")
    shop.commit("the parcel came back")
    print("refunded:", refund(state=shop))

    order = Order(shop)
    order.books.check()
    print("\nthe books:", order.books.value)
    print("\nwhat happened:")
    for event in events(shop, types=TransitionEvent):
        known = shop.checkout(event.commit_hash)
        print(f"  {event.from_state} --{event.event}--> {event.to_state}  (it was {known.get('status', 'cart')})")
    print("\nby whom:")
    for commit in shop.log():
        print(f"  {commit.author}: {commit.message}")


if __name__ == "__main__":
    main()
