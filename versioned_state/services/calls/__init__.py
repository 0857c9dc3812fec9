"""The parts of a call of a service: lanes, handles, deadlines, telemetry. Layer: services."""
