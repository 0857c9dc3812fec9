"""Events: what happened in the calls of tasks, kept beside the state. Layer: agents."""
