"""The checks of ``versioned_state.arguments``, under the name that they had. Layer: repository."""

from versioned_state.arguments import age, as_ttl, check_text, count

__all__ = ["age", "as_ttl", "check_text", "count"]
