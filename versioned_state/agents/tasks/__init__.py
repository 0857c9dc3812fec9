"""Tasks: functions whose calls are rounds of a state. Layer: agents."""
