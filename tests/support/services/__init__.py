"""The contracts of the services, as classes that the test of each backend subclasses."""
