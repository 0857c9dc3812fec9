"""Tools for the authors of agents: tasks over a state, events, effects and views. Layer: agents."""
