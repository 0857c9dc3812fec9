"""The programs of a well-known page on agents' state run over our parts, as printed except for the gaps they leave."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from versioned_state import (
    Bounded,
    EventSourced,
    Live,
    Memory,
    StateMachine,
    TransitionEvent,
    Versioned,
    branch_name,
    events,
    task,
)
from versioned_state.errors import MergeConflictError, SchemaError
from versioned_state.storage import Tiered
from versioned_state.storage.testing.writers import run_together

# The state, as it is shown

CONVERSATION = """
{
    "messages": [
        {"role": "user", "content": "Book a flight to NYC"},
        {"role": "assistant", "content": "What dates?"},
        {"role": "user", "content": "Next Monday"}
    ],
    "context_tokens": 250
}
"""

TASK = """
{
    "task_id": "123",
    "goal": "Book flight to NYC",
    "status": "in_progress",
    "steps_completed": 2,
    "steps_remaining": 3,
    "current_step": "comparing_prices",
    "data": {
        "destination": "NYC",
        "dates": "2024-02-05",
        "flight_options": [...]
    }
}
"""

USER = """
{
    "user_id": "user_456",
    "preferences": {
        "airline": "Delta",
        "seat": "aisle",
        "budget": "under_500"
    },
    "history": {
        "past_bookings": [...],
        "frequent_destinations": ["NYC", "SF"]
    }
}
"""


@pytest.mark.parametrize("shown", [CONVERSATION, TASK, USER])
def test_the_kinds_of_state_are_kept_as_they_are(shown):
    given_: dict[str, Any] = eval(shown)
    state = Versioned(Memory())
    state.update(given_)
    state.commit("round 1")
    assert dict(Versioned(state.repository)) == given_


# The programs


def run(source: str, **names: Any) -> SimpleNamespace:
    exec(textwrap.dedent(source), names)
    return SimpleNamespace(**names)


def llm(message: object) -> str:
    return f"answer to {message}"


STATELESS = """
def agent_call(user_message):
    # No state maintained between calls
    # Everything in the message
    response = llm(user_message)
    return response
"""


def test_stateless():
    call = task(run(STATELESS, llm=llm).agent_call)
    assert call("hi") == call("hi") == "answer to hi"


IN_MEMORY = """
class StatefulAgent:
    def __init__(self):
        self.state = {
            "conversation": [],
            "current_task": None,
            "data": {}
        }

    def process(self, user_input):
        # Update state
        self.state["conversation"].append({
            "role": "user",
            "content": user_input
        })

        # Use state in processing
        response = self.generate_response(
            user_input,
            conversation_history=self.state["conversation"]
        )

        # Update state
        self.state["conversation"].append({
            "role": "assistant",
            "content": response
        })

        return response
"""


@pytest.mark.parametrize("make", [Live, Versioned])
def test_in_memory(make):
    agent_class: Any = run(IN_MEMORY).StatefulAgent

    class Agent(agent_class):  # type: ignore[misc]
        def __init__(self, state):
            super().__init__()
            state.update(vars(self)["state"])
            self.state: Any = state

        def generate_response(self, user_input, conversation_history):
            return f"answer {len(conversation_history)} to {user_input}"

    agent = Agent(make())
    assert agent.process("hi") == "answer 1 to hi"
    if isinstance(agent.state, Versioned):
        agent.state.commit("round 1")
    assert agent.process("and?") == "answer 3 to and?"
    if isinstance(agent.state, Versioned):
        assert "conversation[2]" in str(agent.state.status()), "what was mutated in place is seen"


PERSISTED = """
class PersistentAgent:
    def __init__(self, session_id):
        self.session_id = session_id
        self.state = self.load_state()  # Load from DB

    def load_state(self):
        return db.get(f"session:{self.session_id}") or {}

    def save_state(self):
        db.set(f"session:{self.session_id}", self.state)

    def process(self, user_input):
        # Load state
        self.state = self.load_state()

        # Process
        response = self.generate_response(user_input, self.state)

        # Update and save
        self.update_state(response)
        self.save_state()

        return response
"""


class Sessions:
    """The `db` of the page: a branch for each session, and a commit for each save."""

    def __init__(self, store):
        self.store = store

    def open(self, key):
        return Versioned(self.store, branch=branch_name(key))

    def get(self, key):
        return self.open(key)

    def set(self, key, state):
        kept = state if isinstance(state, Versioned) else self.open(key)
        if kept is not state:
            kept.update(state)
        kept.commit("saved")


def test_persisted():
    store = Memory()
    agent_class: Any = run(PERSISTED, db=Sessions(store)).PersistentAgent

    class Agent(agent_class):  # type: ignore[misc]
        def generate_response(self, user_input, state):
            return f"{len(state.get('said', []))} before: {user_input}"

        def update_state(self, response):
            self.state.setdefault("said", []).append(response)

    assert Agent("a/1").process("hi") == "0 before: hi"
    assert Agent("a/1").process("again") == "1 before: again"
    assert Agent("a").process("1/hi") == "0 before: 1/hi"
    assert Sessions(store).open("session:a/1")["said"] == ["0 before: hi", "1 before: again"]
    assert len(list(Sessions(store).open("session:a/1").log())) == 2


EVENT_SOURCED = '''
class EventSourcedAgent:
    """Store all events, rebuild state by replaying them"""

    def __init__(self, session_id):
        self.session_id = session_id
        self.events = []

    def load_events(self):
        return db.get_all_events(self.session_id)

    def rebuild_state(self):
        """Replay all events to get current state"""
        state = {}
        for event in self.load_events():
            state = self.apply_event(state, event)
        return state

    def process(self, user_input):
        # Rebuild current state from events
        state = self.rebuild_state()

        # Generate response
        response = self.generate_response(user_input, state)

        # Save new event
        event = {
            "type": "message",
            "data": {"role": "user", "content": user_input},
            "timestamp": now()
        }
        db.append_event(self.session_id, event)

        return response
'''


def test_event_sourcing():
    state = Versioned(Memory())

    def apply(value, event):
        return {**value, "said": [*value.get("said", []), event["data"]["content"]], "at": event["timestamp"]}

    source: EventSourced[Any] = EventSourced(state, apply, initial={})

    def append(session_id, event):
        source.append(event)
        state.commit(f"event of {session_id}")

    db = SimpleNamespace(get_all_events=lambda session_id: source.events, append_event=append)
    agent_class: Any = run(EVENT_SOURCED, db=db, now=count().__next__).EventSourcedAgent

    class Agent(agent_class):  # type: ignore[misc]
        apply_event = staticmethod(apply)

        def generate_response(self, user_input, state):
            return f"{len(state.get('said', []))} before: {user_input}"

    agent = Agent("a")
    for number, text in enumerate(["one", "two", "three"]):
        assert agent.process(text) == f"{number} before: {text}"
        assert source.value == agent.rebuild_state()
    again: EventSourced[Any] = EventSourced(Versioned(state.repository), apply, initial={})
    assert again.value == source.replay() == agent.rebuild_state()
    source.check()


TIERED = """
class TieredStateAgent:
    def __init__(self):
        # Hot: Recent messages (in memory)
        self.hot_state = {
            "recent_messages": []  # Last 10 messages
        }

        # Warm: Current session (Redis)
        self.warm_state_key = f"session:{session_id}"

        # Cold: Historical (PostgreSQL)
        self.cold_storage = database

    def get_context(self):
        # Combine tiered state
        context = {
            "recent": self.hot_state["recent_messages"],
            "session": redis.get(self.warm_state_key),
            "user_history": self.cold_storage.get_user_history()
        }
        return context
"""


def test_tiers():
    hot, warm, cold = Memory(), Memory(), Memory()
    state = Versioned(Tiered(hot, warm, cold), branch=branch_name("session:7"))
    state["messages"] = [f"message {number} " + "x" * 200 for number in range(40)]
    state["history"] = ["NYC"]
    state.commit("forty messages")
    sessions = Sessions(state.repository.store)
    database = SimpleNamespace(get_user_history=lambda: Versioned(cold, branch=state.branch)["history"])
    redis = SimpleNamespace(get=lambda key: dict(sessions.open(key)))
    agent = run(TIERED, session_id=7, database=database, redis=redis).TieredStateAgent()
    agent.hot_state["recent_messages"] = state.sequence("messages")[-10:]
    context = agent.get_context()
    assert context["recent"] == context["session"]["messages"][-10:]
    assert context["user_history"] == ["NYC"]
    hot.delete_many(list(hot.keys()))
    assert agent.get_context() == context, "a hot tier may lose everything"


STATE_MACHINE = '''
class AgentStateMachine:
    """Agent as a state machine"""

    STATES = ["idle", "planning", "executing", "waiting_feedback", "done"]

    def __init__(self):
        self.current_state = "idle"
        self.data = {}

    def transition(self, event):
        # State transitions
        transitions = {
            ("idle", "new_task"): "planning",
            ("planning", "plan_ready"): "executing",
            ("executing", "step_complete"): "executing",
            ("executing", "needs_input"): "waiting_feedback",
            ("waiting_feedback", "input_received"): "executing",
            ("executing", "task_complete"): "done",
        }

        new_state = transitions.get((self.current_state, event))

        if new_state:
            self.current_state = new_state
        else:
            raise ValueError(f"Invalid transition: {self.current_state} + {event}")

    def run(self):
        while self.current_state != "done":
            if self.current_state == "planning":
                self.plan()
                self.transition("plan_ready")

            elif self.current_state == "executing":
                result = self.execute_step()

                if result.complete:
                    self.transition("task_complete")
                elif result.needs_input:
                    self.transition("needs_input")
                else:
                    self.transition("step_complete")

            elif self.current_state == "waiting_feedback":
                feedback = self.wait_for_user()
                self.transition("input_received")
'''

TRANSITIONS = {
    ("idle", "new_task"): "planning",
    ("planning", "plan_ready"): "executing",
    ("executing", "step_complete"): "executing",
    ("executing", "needs_input"): "waiting_feedback",
    ("waiting_feedback", "input_received"): "executing",
    ("executing", "task_complete"): "done",
}
EVENTS = [*dict.fromkeys(event for _, event in TRANSITIONS), "no such event"]


def machine_on(state):
    return StateMachine(state, "agent", initial="idle", transitions=TRANSITIONS)


@settings(max_examples=20)
@given(st.lists(st.sampled_from(EVENTS), max_size=12))
def test_a_machine_takes_and_refuses_what_that_of_the_page_does(steps):
    theirs = run(STATE_MACHINE).AgentStateMachine()
    state = Versioned(Memory())
    ours = machine_on(state)
    for event in steps:
        said: list[str] = []
        for each in (theirs, ours):
            try:
                each.transition(event)
            except ValueError as error:
                said.append(str(error).partition(";")[0])
        assert len(said) in (0, 2)
        assert len(set(said)) < 2
        assert theirs.current_state == ours.current
        state.commit(event)
    assert all((each.from_state, each.event) in TRANSITIONS for each in events(state, types=TransitionEvent))


def test_the_loop_of_the_page_runs_on_our_machine():
    class Agent(run(STATE_MACHINE).AgentStateMachine):  # type: ignore[misc]
        def __init__(self, state):
            self.state, self.machine = state, machine_on(state)
            self.steps = iter([(False, False), (False, True), (True, False)])

        @property
        def current_state(self):
            return self.machine.current

        def transition(self, event):
            self.machine.transition(event)
            self.state.commit(event)

        def plan(self):
            self.state["plan"] = ["search", "compare", "book"]

        def execute_step(self):
            complete, needs_input = next(self.steps)
            return SimpleNamespace(complete=complete, needs_input=needs_input)

        def wait_for_user(self):
            return "yes"

    agent = Agent(Versioned(Memory()))
    agent.transition("new_task")
    agent.run()
    told = [each.event for each in events(agent.state, types=TransitionEvent)]
    assert told == ["new_task", "plan_ready", "step_complete", "needs_input", "input_received", "task_complete"]
    assert [commit.message for commit in agent.state.log()] == told[::-1]


BOUNDED = """
class BoundedState:
    def __init__(self, max_tokens=8000):
        self.messages = []
        self.max_tokens = max_tokens

    def add_message(self, msg):
        self.messages.append(msg)

        # Prune if too large
        while self.count_tokens() > self.max_tokens:
            # Strategy 1: Drop oldest
            self.messages.pop(0)

            # Strategy 2: Summarize old messages
            if len(self.messages) > 20:
                old_batch = self.messages[:10]
                summary = llm.summarize(old_batch)
                self.messages = [summary] + self.messages[10:]

    def get_context(self):
        return self.messages
"""


def test_bounded_by_tokens_as_on_the_page():
    class Theirs(run(BOUNDED).BoundedState):  # type: ignore[misc]
        def count_tokens(self):
            return sum(map(len, self.messages))

    theirs = Theirs(max_tokens=40)
    state = Versioned(Memory(), schema={"messages": Bounded(max_tokens=40, count_tokens=len)})
    state["messages"] = held = []
    for number in range(30):
        theirs.add_message(f"message {number}")
        held.append(f"message {number}")
        state.commit()
        assert state["messages"] is held
        assert held == theirs.get_context()
    assert state.checkout("HEAD~29")["messages"] == ["message 0"], "what left the list is in history"


DISTRIBUTED = """
# Use Redis for shared state across servers
import redis

class DistributedAgent:
    def __init__(self, session_id):
        self.redis = redis.Redis()
        self.session_id = session_id

    def get_state(self):
        state_json = self.redis.get(f"agent_state:{self.session_id}")
        return json.loads(state_json) if state_json else {}

    def update_state(self, updates):
        # Atomic update with lock
        with self.redis.lock(f"lock:{self.session_id}"):
            state = self.get_state()
            state.update(updates)
            self.redis.set(
                f"agent_state:{self.session_id}",
                json.dumps(state),
                ex=3600  # Expire after 1 hour
            )
"""


class OurRedis:
    """What the page asks of `redis.Redis()`, over a branch and its lock."""

    def __init__(self, store):
        self.state = Versioned(store, branch="session")

    def get(self, key):
        return self.state.get(key)

    def set(self, key, value, ex):
        self.state[key] = value
        self.state.commit("update")

    @contextmanager
    def lock(self, name) -> Iterator[None]:
        with self.state.lock(ttl=30, wait=60):
            yield


def test_distributed_with_a_lock():
    store = Memory()
    module = SimpleNamespace(Redis=lambda: OurRedis(store))
    source = DISTRIBUTED.replace("import redis\n", "")
    agent_class: Any = run(source, redis=module, json=json).DistributedAgent

    def work(name: str) -> None:
        agent = agent_class("7")
        for number in range(5):
            with suppress(MergeConflictError):  # none: each update is made under the lock, on the newest state
                agent.update_state({f"{name} {number}": number})

    run_together(partial(work, name) for name in "abcd")
    agent = agent_class("7")
    agent.update_state({})
    assert agent.get_state() == {f"{name} {number}": number for name in "abcd" for number in range(5)}


VERSIONED = '''
class VersionedState:
    """Track state versions for rollback"""

    def __init__(self):
        self.versions = []
        self.current_version = 0

    def checkpoint(self, state):
        """Save a version"""
        self.versions.append(copy.deepcopy(state))
        self.current_version = len(self.versions) - 1

    def rollback(self, steps=1):
        """Revert to previous version"""
        self.current_version = max(0, self.current_version - steps)
        return self.versions[self.current_version]

    def get_state(self):
        return self.versions[self.current_version]
'''


@settings(max_examples=20)
@given(st.lists(st.integers(0, 5), min_size=1), st.lists(st.integers(0, 4)))
def test_versions_and_rollback(values, steps):
    import copy

    theirs = run(VERSIONED, copy=copy).VersionedState()
    state = Versioned(Memory())
    for value in values:
        theirs.checkpoint({"value": value})
        state["value"] = value
        state.commit("checkpoint", allow_empty=True)
    for number in steps:
        assert theirs.rollback(number) == dict(state.checkout(state.rollback(number))) == dict(state)
    before = state.head
    theirs.checkpoint({"value": 99})
    state["value"] = 99
    state.commit("checkpoint")
    assert theirs.get_state() == dict(state)
    assert state.head.parents == (before.id,), (
        "after the version that was gone back to: theirs would go on at the end of the list"
    )


ASSISTANTS = """
# Threads = persistent state
thread = client.beta.threads.create()

# Add messages to thread
client.beta.threads.messages.create(
    thread_id=thread.id,
    role="user",
    content="Help me book a flight"
)
"""


def test_threads_that_persist():
    store = Memory()
    sessions = Sessions(store)
    ids = count(1)

    def create_message(thread_id, **message):
        state = sessions.open(thread_id)
        state.sequence("messages").append(message)
        state.commit("message")

    threads = SimpleNamespace(
        create=lambda: SimpleNamespace(id=f"thread {next(ids)}"), messages=SimpleNamespace(create=create_message)
    )
    names = run(ASSISTANTS, client=SimpleNamespace(beta=SimpleNamespace(threads=threads)))
    assert sessions.open(names.thread.id)["messages"] == [{"role": "user", "content": "Help me book a flight"}]


LANGCHAIN = """
memory = ConversationBufferMemory()

# Automatically manages conversation state
agent = initialize_agent(
    tools=tools,
    llm=llm,
    memory=memory  # Handles state for you
)
"""


def test_a_memory_that_handles_the_state():
    state = Versioned(Memory())

    def initialize_agent(tools, llm, memory):
        @task
        def chat(message, state):
            state.setdefault("history", []).append(message)
            return llm(message)

        return lambda message: chat(message, state=memory)

    names = run(LANGCHAIN, ConversationBufferMemory=lambda: state, initialize_agent=initialize_agent, tools=[], llm=llm)
    assert names.agent("hi") == "answer to hi"
    assert Versioned(state.repository)["history"] == ["hi"]


GLOBAL = """
# Bad: Shared across all users!
CURRENT_TASK = None

def process(user_input):
    global CURRENT_TASK
    # Race conditions, mixed state
"""


def test_users_do_not_share_a_state():
    run(GLOBAL).process("hi")

    @task
    def process(user_input, state):
        state["current_task"] = user_input

    sessions = Sessions(Memory())
    for user in ("ann", "bob"):
        process(f"task of {user}", state=sessions.open(user))
    assert [sessions.open(user)["current_task"] for user in ("ann", "bob")] == ["task of ann", "task of bob"]


UNVALIDATED = """
# Bad: Trusting state blindly
state = load_state()
amount = state["amount"]  # Could be None, invalid, etc.
charge_user(amount)  # Crash or wrong charge!
"""

VALIDATED = """
class ValidatedState:
    def __init__(self, session_id):
        self.session_id = session_id  # Scoped to session

    def get_amount(self):
        amount = self.state.get("amount")

        # Validate
        if amount is None or amount <= 0:
            raise ValueError("Invalid amount in state")

        return amount
"""


def is_amount(amount: Any) -> bool:
    return amount is not None and amount > 0


@pytest.mark.parametrize("amount", [None, 0, -3])
def test_a_state_is_validated_when_it_is_written_and_when_it_is_read(amount):
    sessions = Sessions(Memory())
    ours = run(VALIDATED).ValidatedState("a")
    ours.state = sessions.open("a")
    ours.state["amount"] = amount
    with pytest.raises(ValueError, match="Invalid amount in state"):
        ours.get_amount()
    ours.state.commit("by a program without a schema")

    checked = Versioned(sessions.store, branch=branch_name("a"), schema={"amount": is_amount}, check_reads=True)
    charged: list[Any] = []
    with pytest.raises(SchemaError, match="amount"):
        run(UNVALIDATED, load_state=lambda: checked, charge_user=charged.append)
    assert not charged
    checked["amount"] = 10
    checked.commit("corrected")
    run(UNVALIDATED, load_state=lambda: checked, charge_user=charged.append)
    assert charged == [10]
    assert "amount" not in sessions.open("b"), "another session has a state of its own"
    checked["amount"] = amount
    with pytest.raises(SchemaError, match="amount"):
        checked.commit("refused")
    checked.discard()
