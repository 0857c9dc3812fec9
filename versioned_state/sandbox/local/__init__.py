"""Local sandboxes: a folder, and processes that the kernel confines as far as it allows. Layer: sandbox."""
