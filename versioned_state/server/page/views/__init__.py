"""The views of the page, a module each: data in, a dict of JSON types out, no HTML. Layer: server."""
