"""Commands about the tasks of agents. Layer: cli."""
