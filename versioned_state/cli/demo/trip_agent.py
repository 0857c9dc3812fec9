"""The agent of ``vstate demo``: it plans a weekend with tools, and its whole memory is one state. Layer: cli.

There is no model and no network: the next step follows from the state, and the tools have one weekend, so every run
makes the same commits. The agent changes lists and dicts in place, as any agent would, and contains no code for
versions.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass, field
from typing import Any, Final

from versioned_state.agents.events.classes import ActionEvent
from versioned_state.agents.tasks.task import current_state, emit, task

State = MutableMapping[str, Any]


@dataclass(frozen=True)
class Round:
    """One round: its author and message, its length in seconds, and data to keep with its commit."""

    author: str
    message: str
    seconds: int
    meta: dict[str, Any] = field(default_factory=dict)


_SYSTEM: Final = """\
You plan short trips. You work in rounds: read what the traveller says, look at the plan, call one tool, and write down
what you learned before you do anything else.

Rules:
- Never spend more than the limit in `budget`. Count what is booked, not what is planned.
- A booking that breaks a preference is cancelled before anything new is booked.
- Prefer trains to flights, and places within walking distance of each other.
- Ask before you book anything that cannot be cancelled.
- Keep `notes` short enough to read in one glance: one line for each thing to remember.
- When the plan is done, say so in one message, with times and prices, and stop.

Tools: search_trains(day, after), weather(city, days), search_hotels(city, nights, people), search_tables(city, diet), \
book(what)."""

_TRAINS: Final = [
    {
        "train": "AP 121",
        "leaves": "07:04",
        "arrives": "10:11",
        "changes": 0,
        "price": 49,
        "seats": 22,
        "refund": "until departure",
    },
    {
        "train": "IC 523",
        "leaves": "08:34",
        "arrives": "12:01",
        "changes": 0,
        "price": 51,
        "seats": 64,
        "refund": "until departure",
    },
    {
        "train": "AP 125",
        "leaves": "09:39",
        "arrives": "12:46",
        "changes": 0,
        "price": 56,
        "seats": 31,
        "refund": "until departure",
    },
    {
        "train": "AP 129",
        "leaves": "11:39",
        "arrives": "14:49",
        "changes": 0,
        "price": 58,
        "seats": 9,
        "refund": "until departure",
    },
    {
        "train": "IC 527",
        "leaves": "13:04",
        "arrives": "17:22",
        "changes": 1,
        "price": 44,
        "seats": 80,
        "refund": "none",
    },
]

_HOTELS: Final = [
    {
        "hotel": name,
        "area": area,
        "price": price,
        "rating": rating,
        "quiet": quiet,
        "address": f"Rua {street} {17 + 9 * number}, 1100-{201 + 37 * number} Lisboa",
        "rooms": 12 + 31 * number % 90,
        "check_in": f"{14 + number % 3}:00",
        "free_cancellation_until": f"2026-06-{11 - number % 4:02} 18:00",
        "about": about,
    }
    for number, (name, area, price, rating, quiet, street, about) in enumerate(
        [
            (
                "Pensão do Castelo",
                "Alfama",
                342,
                8.9,
                True,
                "do Salvador",
                "A family house below the castle walls. No cars in the street after ten.",
            ),
            (
                "Rossio Grand",
                "Baixa",
                396,
                8.4,
                False,
                "do Ouro",
                "On the square, above two theatres and a tram stop; ask for the courtyard.",
            ),
            (
                "Casa da Graça",
                "Graça",
                318,
                7.1,
                True,
                "da Senhora do Monte",
                "Simple rooms and the best view of the river. Shared bathrooms on two floors.",
            ),
            (
                "Oriente Business",
                "Parque das Nações",
                287,
                7.8,
                False,
                "do Bojador",
                "Five minutes from the station, twenty-five by metro from the old town.",
            ),
            (
                "Príncipe Garden",
                "Príncipe Real",
                448,
                9.2,
                True,
                "da Escola Politécnica",
                "Twelve rooms around a garden. Breakfast until noon, and a library.",
            ),
            (
                "Bairro Loft",
                "Bairro Alto",
                305,
                8.0,
                False,
                "da Atalaia",
                "Large rooms in the street where the city goes out; earplugs on the pillow.",
            ),
            (
                "Tejo Rooms",
                "Cais do Sodré",
                276,
                7.4,
                False,
                "Nova do Carvalho",
                "Above the pink street. Good beds, thin windows, an excellent bakery below.",
            ),
            (
                "Estrela Quiet House",
                "Estrela",
                389,
                8.6,
                True,
                "do Possolo",
                "By the basilica and its park, a tram ride from everything, and very calm.",
            ),
        ]
    )
]

_TABLES: Final = [
    {"place": "Jardim das Cerejas", "area": "Chiado", "at": "Sat 20:00", "price": 34, "vegetarian": True},
    {"place": "Taberna do Largo", "area": "Alfama", "at": "Sat 20:30", "price": 46, "vegetarian": False},
]

_WEATHER: Final = [
    {"day": "Fri", "sky": "sunny", "high": 26, "rain": 0.05},
    {"day": "Sat", "sky": "showers after 14:00", "high": 21, "rain": 0.7},
    {"day": "Sun", "sky": "sunny", "high": 24, "rain": 0.1},
]


@task
def move_to(hotel: str, price: int) -> str:
    """Give the room back, and take one in another hotel: a task, so a call is one commit."""
    state = current_state()
    emit(ActionEvent(thinking=f"the room was lost; {hotel} has one", code=f"move_to({hotel!r}, {price})"))
    room = next(entry for entry in state["itinerary"] if "nights" in entry["what"])
    state["budget"]["spent"] += price - room["price"]
    room.update(what=f"2 nights, {hotel}", price=price)
    return f"moved to {hotel}"


class TripAgent:
    """Plans the trip, a round at a time. Its whole memory is ``state``."""

    def __init__(self, state: State) -> None:
        self.state = state
        self._calls = 0

    def rounds(self) -> Iterator[Round]:
        """Do a round at each step. The caller that takes the step may commit the state."""
        state = self.state
        state.update(
            messages=[],
            plan=[],
            prefs={},
            budget={"limit": 0, "spent": 0, "currency": "EUR"},
            itinerary=[],
            found={},
            notes="",
        )
        state["messages"].append({"role": "system", "content": _SYSTEM})

        self._on_answer(
            "We are two, and would like a weekend in Lisbon, Porto and back by train, 12 to 14 June. "
            "At most 600 EUR. We like it quiet."
        )
        state["prefs"].update(people=2, days=["Fri", "Sat", "Sun"], quiet=True)
        state["budget"]["limit"] = 600
        yield Round("traveller", "A weekend in Lisbon for two, 600 EUR", 41)

        for what in ("train", "weather", "hotel"):
            state["plan"].append({"do": what, "status": "todo"})
        self._note("Porto to Lisbon, Fri 12 to Sun 14 June, two people")
        self._say("I will look for a train first, then at the weather, then for a quiet hotel.")
        yield Round("planner", "Make a plan", 7)

        while (step := self._next_step()) is not None:
            yield from self._do(step)
            if step["do"] == "hotel":
                yield self._traveller_changes_his_mind()
                yield self._rethink()

        state["itinerary"].sort(key=lambda entry: entry["order"])
        total = state["budget"]["spent"]
        self._say(
            f"All is booked, for {total} EUR of {state['budget']['limit']}: "
            + "; ".join(entry["what"] for entry in state["itinerary"])
            + "."
        )
        self._note(f"done, {total} EUR")
        yield Round("planner", "Everything is booked", 9)

    # What it does

    def _do(self, step: dict[str, Any]) -> Iterator[Round]:
        match step["do"]:
            case "train":
                yield self._search(
                    "trains", "search_trains", day="Fri", after=self.state["prefs"].get("not_before", "00:00")
                )
                yield self._book_train(step)
            case "weather":
                self._call("weather", _WEATHER, city="Lisbon", days=["Fri", "Sat", "Sun"])
                step["status"] = "done"
                self._note("Sat: rain from 14:00, so the tile museum then")
                yield Round("weather", "Look at the weather", 3, {"tool": "weather"})
            case "hotel":
                yield self._search("hotels", "search_hotels", city="Lisbon", nights=2, people=2)
                best = max(
                    (hotel for hotel in self.state["found"]["hotels"] if hotel["quiet"] and hotel["price"] < 400),
                    key=lambda hotel: hotel["rating"],
                )
                yield self._book(step, f"2 nights, {best['hotel']}, {best['area']}", best["price"], order=2)
            case "table":
                yield self._search("tables", "search_tables", city="Lisbon", diet=self.state["prefs"]["diet"])
                table = self.state["found"]["tables"][0]
                self._note(f"{table['at']}: {table['place']}, paid there")
                yield self._book(step, f"Sat dinner, {table['place']}", 0, order=3)

    def _book_train(self, step: dict[str, Any]) -> Round:
        train = min(self.state["found"]["trains"], key=lambda train: train["price"] + 20 * train["changes"])
        self._note(f"train {train['train']} at {train['leaves']}")
        return self._book(
            step,
            f"Fri {train['leaves']}, train {train['train']}",
            train["price"] * self.state["prefs"]["people"],
            order=1,
        )

    def _search(self, what: str, tool: str, **arguments: Any) -> Round:
        self.state["found"][what] = self._call(tool, _answer(what, arguments), **arguments)
        return Round(tool, f"Search for {what}", 4, {"tool": tool, "results": len(self.state["found"][what])})

    def _book(self, step: dict[str, Any], what: str, price: int, *, order: int) -> Round:
        self._call("book", {"booked": what, "price": price, "reference": f"LX{self._calls:04}"}, what=what)
        at = sum(entry["order"] < order for entry in self.state["itinerary"])
        self.state["itinerary"].insert(at, {"order": order, "what": what, "price": price})
        self.state["budget"]["spent"] += price
        step["status"] = "done"
        return Round("planner", f"Book: {what}", 11, {"tool": "book", "price": price})

    def _traveller_changes_his_mind(self) -> Round:
        self._on_answer(
            "Sorry, no train before 9 in the morning. And could we stay under 500? Ana eats vegetarian, by the way."
        )
        self.state["prefs"].update(not_before="09:00", diet="vegetarian")
        self.state["budget"]["limit"] = 500
        return Round("traveller", "Not so early, and not so expensive", 380)

    def _rethink(self) -> Round:
        train = self.state["itinerary"].pop(0)
        self.state["budget"]["spent"] -= train["price"]
        self.state["plan"][0]["status"] = "todo"
        self.state["plan"].append({"do": "table", "status": "todo"})
        self.state["notes"] = "\n".join(
            line for line in self.state["notes"].split("\n") if not line.startswith("train")
        )
        self._note("no train before 09:00")
        self._say("I have given the early train back, and will look for a later one.")
        return Round("planner", "Give the early train back", 8, {"cancelled": train["what"], "refund": train["price"]})

    # How it does it

    def _next_step(self) -> dict[str, Any] | None:
        return next((step for step in self.state["plan"] if step["status"] == "todo"), None)

    def _on_answer(self, text: str) -> None:
        self.state["messages"].append({"role": "user", "content": text})

    def _say(self, text: str) -> None:
        self.state["messages"].append({"role": "assistant", "content": text})

    def _note(self, line: str) -> None:
        self.state["notes"] += ("\n" if self.state["notes"] else "") + line

    def _call(self, tool: str, result: Any, **arguments: Any) -> Any:
        self._calls += 1
        call = {
            "id": f"call_{self._calls:02}",
            "type": "function",
            "function": {"name": tool, "arguments": json.dumps(arguments)},
        }
        self.state["messages"] += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {
                "role": "tool",
                "tool_call_id": call["id"],
                "name": tool,
                "content": json.dumps(result, ensure_ascii=False),
            },
        ]
        return result


def _answer(what: str, arguments: dict[str, Any]) -> list[dict[str, Any]]:
    match what:
        case "trains":
            found = [train for train in _TRAINS if train["leaves"] >= arguments["after"]]
        case "hotels":
            found = _HOTELS
        case _:
            found = [table for table in _TABLES if table["vegetarian"] or arguments["diet"] != "vegetarian"]
    return [dict(each) for each in found]
