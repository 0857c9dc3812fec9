"""Real servers for the tests, each in a folder of its own, and a proxy that cuts connections to them."""
