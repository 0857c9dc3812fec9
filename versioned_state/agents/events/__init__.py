"""Events: records of the calls of tasks, kept with the state. Layer: agents."""
