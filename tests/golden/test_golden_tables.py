"""An accidental change of a table's stored form fails here, and a stored one is read back in every pandas version."""

from __future__ import annotations

import pandas as pd
import pytest

from tests.golden.tables import FILE, VALUES, table
from tests.support.tables import assert_same
from versioned_state.values.decode.decoder import decode_inline
from versioned_state.values.encode.inline import InlineEncoder

pytestmark = pytest.mark.every_case

STORED = {
    name: bytes.fromhex(cell)
    for name, _, cell in (line.partition("\t") for line in FILE.read_text("utf-8").splitlines())
}
IS_NEW = int(pd.__version__.partition(".")[0]) >= 3


def test_tables_are_stored_as_they_were():
    if IS_NEW:
        assert table().splitlines() == FILE.read_text("utf-8").splitlines()
    assert STORED.keys() == VALUES.keys()


@pytest.mark.parametrize("name", STORED)
def test_every_table_is_read_back(name: str):
    found = decode_inline(STORED[name])
    assert InlineEncoder().encode_inline(found) == STORED[name]
    if IS_NEW:
        assert_same(found, VALUES[name])
