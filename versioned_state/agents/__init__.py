"""What authors of agents use: tasks over a state, their events and effects, and views of what an agent knows. Layer: agents."""
