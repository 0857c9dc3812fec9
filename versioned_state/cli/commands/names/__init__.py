"""Commands for branches, tags, policies and signatures. Layer: cli."""
