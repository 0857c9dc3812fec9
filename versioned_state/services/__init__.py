"""Services for many users: states, histories, memories and sandboxes by user and session, as coroutines. Layer: services."""
