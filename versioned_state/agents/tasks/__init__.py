"""Tasks: functions each of whose calls is a round of a state. Layer: agents."""
