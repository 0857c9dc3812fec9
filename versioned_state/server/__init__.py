"""The services over HTTP: ``vstate serve``. Needs the extra ``server``. Layer: server, above the services."""
