"""A runner over any function that answers like a chat-completions API.

    python examples/chat_completions.py

Such functions are ``OpenAI().chat.completions.create`` and the like of other libraries and servers; here a list of
replies stands for one. The conversation lives in the state, so each answer of the model is a commit, and each call of a
tool knows which.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable
from typing import Any, get_type_hints

from versioned_state import ActionEvent, Agent, Call, OutputEvent, TaskFailed, Versioned, events

JSON_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean", list: "array", dict: "object"}
ROUNDS = 20


def described(tool: Callable[..., Any]) -> dict[str, Any]:
    """A function or a task, as the model is told of it."""
    function = inspect.unwrap(tool)
    types = get_type_hints(function)
    parameters = [each for each in inspect.signature(function).parameters.values() if each.name != "state"]
    properties = {each.name: {"type": JSON_TYPES.get(types.get(each.name, str), "string")} for each in parameters}
    schema = {
        "type": "object",
        "properties": properties,
        "required": [each.name for each in parameters if each.default is each.empty],
    }
    return {
        "type": "function",
        "function": {"name": tool.__name__, "description": inspect.getdoc(tool) or "", "parameters": schema},
    }


def chat_runner(
    complete: Callable[..., Any], *, model: str, tools: Iterable[Callable[..., Any]] = ()
) -> Callable[[Call], Any]:
    """A runner that asks ``complete(model=…, messages=…, tools=…)`` until it answers without calling a tool."""
    functions = {tool.__name__: tool for tool in tools}
    told = {name: described(tool) for name, tool in functions.items()}
    options = {"model": model} | ({"tools": list(told.values())} if told else {})

    def use(call: Call, wanted: dict[str, Any]) -> dict[str, Any]:
        """Call a tool as the model wants it, and return the message for the model."""
        name, arguments = wanted["function"]["name"], wanted["function"]["arguments"]
        call.emit(ActionEvent(code=f"{name}({arguments})"))
        try:
            given = json.loads(arguments)
            if given.keys() - told[name]["function"]["parameters"]["properties"].keys():
                raise TypeError("unknown arguments")  # the model is not to choose the state of a task
            result = functions[name](**given)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            # the model erred: it is told, and may try again
            result = f"error: {error!r}"
        call.emit(OutputEvent(parts=[result]))
        return {"role": "tool", "tool_call_id": wanted["id"], "content": json.dumps(result, default=str)}

    def run(call: Call) -> Any:
        messages = call.state.setdefault("messages", [])
        if messages and messages[-1].get("tool_calls"):
            messages.pop()  # a call failed before it answered: no server takes a wish without an answer
        inputs = "".join(f"\n{name}: {value!r}" for name, value in call.inputs.items())
        messages.append({"role": "user", "content": f"{call.documentation}\n{inputs}".strip()})
        for _ in range(ROUNDS):
            completion = complete(**options, messages=messages)
            completion = completion if isinstance(completion, dict) else completion.model_dump(exclude_none=True)
            answer = completion["choices"][0]["message"]
            messages.append(answer)
            call.checkpoint(f"{call.name}: the model answers")
            if not answer.get("tool_calls"):
                return answer["content"] if call.types.get("return", str) is str else json.loads(answer["content"])
            messages += [use(call, wanted) for wanted in answer["tool_calls"]]
        raise TaskFailed(f"the model did not come to an end in {ROUNDS} rounds")

    return run


def said(content: str | None = None, **arguments: Any) -> dict[str, Any]:
    """A completion as a server sends it: a text, or calls of tools, each with its arguments."""
    calls = [
        {"id": name, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments[name])}}
        for name in arguments
    ]
    return {
        "choices": [{"message": {"role": "assistant", "content": content} | ({"tool_calls": calls} if calls else {})}]
    }


def weather(city: str) -> str:
    """The weather in a city."""
    return {"Oslo": "snow", "Rome": "sun"}[city]


def main() -> None:
    replies = iter([said(weather={"city": "Rome"}), said("Take sunglasses.")])
    agent = Agent("packer", runner=chat_runner(lambda **_: next(replies), model="scripted", tools=[weather]))

    @agent.task
    def pack(city: str) -> str:  # type: ignore[empty-body]
        """Say what to pack for a city."""

    state = Versioned()
    print(pack("Rome", state=state))
    for event in events(state, types=(ActionEvent, OutputEvent)):
        print(event, "after", len(state.checkout(event.commit_hash)["messages"]), "messages")


if __name__ == "__main__":
    main()
