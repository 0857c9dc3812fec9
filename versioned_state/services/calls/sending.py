"""``sent``: what a call in steps sends to the store together with other sessions, and what it sends alone. Layer: services."""

from __future__ import annotations

from typing import Final

from versioned_state.errors import StateError
from versioned_state.repository.database import Publication
from versioned_state.repository.refs.ref import Ref
from versioned_state.services.calls.turn import ALONE, Steps

_LARGE: Final = 1 << 18
"""Bytes from which on a publication is sent alone: the others of a round trip would wait until it has been packed and sent."""


def sent(publication: Publication) -> Steps[Ref | StateError | None]:
    """The answer of ``publish_each`` to a publication. Unless it is a ref, what comes next may wait for the store."""
    if publication.staging.held_bytes >= _LARGE:
        yield ALONE
    answer: Ref | StateError | None = yield publication
    if not isinstance(answer, Ref):
        yield ALONE
    return answer
