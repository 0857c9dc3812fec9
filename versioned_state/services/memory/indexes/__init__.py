"""Indexes of the words of messages: in the state, in a file of SQLite beside a ``Disk``, in a table of PostgreSQL.

Layer: services.
"""
