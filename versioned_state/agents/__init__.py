"""For the authors of agents: tasks over a state, events and effects, and views of an agent's knowledge. Layer: agents."""
