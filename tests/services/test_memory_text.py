"""Words, pieces and grams: whatever contains a keyword is among what an index would name. Any text, any keyword."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import example, given, strategies as st

from tests.support.counted_calls import calls_of
from tests.support.services.memory_contract import said
from versioned_state.services.memory.indexes.terms import terms_of, terms_within, word_term
from versioned_state.services.memory.memories import Place, escaped, new_ids, session_name
from versioned_state.services.memory.text import is_plain, keywords_of, matcher, pieces_of, text_of, words_of
from versioned_state.services.session_history.messages import data_of

# Letters that fold to several, accents apart and together, final sigma, jamo, kana with marks, ideographs, signs,
# emoji, joiners.
TRICKY = (
    "aAbB1_ \n.-+ß\u1e9e\u017f\ufb01\u0130\u0131Ii\u03c3\u03c2\u03a3é\u00e9e\u0301\u0308\u0345\u01c5\u2126"
    "\u1100\u1161\u11a8각가"
    "ガカ\u3099苹果りんご・ー々😀\u200d\u200c\udcff\0\x1c\xa0\u0663²"
)

texts = st.one_of(
    st.text(TRICKY, max_size=30),
    st.text(max_size=30),
    st.lists(st.text("abcdE1苹果\u00df", min_size=1, max_size=9), max_size=5).map(" ".join),
)


@given(texts, st.data())
@example("e\u0301clair", None)
def test_a_text_with_a_keyword_has_the_terms_that_a_search_asks_for(text: str, data: st.DataObject | None) -> None:
    folded = text.casefold()
    if data is None:
        parts = [folded[1:], "e"]
    else:
        start = data.draw(st.integers(0, len(folded)))
        end = data.draw(st.integers(start, len(folded)))
        parts = [*folded[start:end].split(), *keywords_of(data.draw(texts))]
    words, (_, grams) = words_of(text), terms_of(text)
    for keyword in parts:
        assert keyword_is_in(text, keyword) == (keyword in folded)
        if keyword not in folded or not is_plain(text):
            continue
        pieces = pieces_of(keyword)
        assert pieces is not None
        assert all(any(piece in word for word in words) for piece in pieces)
        wanted = terms_within([pieces]) if pieces else None
        assert wanted is None or set(wanted[0]) <= set(grams)


def keyword_is_in(text: str, keyword: str) -> bool:
    few, many = (
        matcher(frozenset([keyword])),
        matcher(frozenset([keyword, *(f"\u241f{number}" for number in range(300))])),
    )
    assert few(text) == many(text)
    return few(text)


@given(texts)
def test_terms_are_letters_and_digits_whatever_the_text(text: str) -> None:
    words, grams = terms_of(text)
    assert all(term.isascii() and term.isalnum() for term in (*words, *grams))
    assert words.total() == words_of(text).total()
    assert words == {word_term(word): times for word, times in words_of(text).items()}


@given(texts)
def test_words_are_the_same_for_every_form_of_a_text(text: str) -> None:
    folded = unicodedata.normalize("NFC", text.casefold())
    for form in ("NFC", "NFD"):
        assert words_of(unicodedata.normalize(form, folded)) == words_of(folded)


@given(texts, texts)
def test_sessions_have_names_of_their_own_in_the_order_of_their_ids(one: str, other: str) -> None:
    names = [escaped(one), escaped(other)]
    assert all(name and "\0" not in name for name in names)
    assert (names[0] == names[1]) == (one == other)
    if one and other:
        assert (names[0].encode(errors="surrogatepass") < names[1].encode(errors="surrogatepass")) == (one < other)


@pytest.mark.parametrize(
    "ids",
    [
        ("x" * 1001, "x" * 1002),
        ("é" * 2000, "é" * 1999 + "e"),
        ("\0" * 5000, "\0" * 4999),
        ("\udcff" * 900, "\udcff" * 901),
    ],
)
def test_long_sessions_have_short_names_of_their_own(ids: tuple[str, str]) -> None:
    names = [session_name(id) for id in ids]
    assert names[0] != names[1]
    assert all(len(name.encode(errors="surrogatepass")) < 1100 and "\0" not in name for name in names)
    assert session_name(None) == session_name("") == "default"


def test_ids_come_after_the_last_one_whatever_the_clock_says() -> None:
    (first,) = new_ids(1, None)
    later = new_ids(100, first)
    assert sorted([first, *later]) == [first, *later]
    future = "3" + first[1:]  # of a machine whose clock is wrong
    (after,) = new_ids(1, future)
    assert after > future
    place = Place(first, "any\x01session")
    assert Place.of(place.key) == place


def test_the_text_of_a_message_and_of_its_stored_form_are_the_same() -> None:
    message = said("one", "two")
    assert text_of(message) == text_of(data_of(message)) == "one\ntwo"
    assert (
        text_of({})
        == text_of({"content": None})
        == text_of({"content": [{"type": "text"}, {"type": "image", "text": "x"}]})
        == ""
    )


def test_keywords_of_many_lengths_do_not_multiply_the_length_of_a_text():
    matches = matcher(frozenset("a" * length for length in range(2, 302)))
    assert calls_of(lambda: matches("ab" * 1000)) < 1000
    assert matches("ab" * 1000 + "aa")
