"""Output for a terminal. Layer: cli."""
