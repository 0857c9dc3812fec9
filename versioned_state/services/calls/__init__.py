"""What a call of a service passes through: its lane, its handle, its spans. Layer: services."""
