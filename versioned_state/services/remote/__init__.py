"""Services that another process offers over HTTP, as classes of the same calls.

Needs the extra ``client``. Layer: services.
"""
