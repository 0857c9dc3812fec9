"""Parts of the calls of services: lanes, handles, deadlines, telemetry. Layer: services."""
