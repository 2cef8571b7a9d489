"""Sets of small whole numbers as the bits of words."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from vcomp.numerics.kernels import njit

WordArray: TypeAlias = NDArray[np.uint64]

# Unsigned throughout: signed indices are checked for negative values at every step.
_NONE, ONE = np.uint64(0), np.uint64(1)
_SHIFT = np.uint64(6)
_WITHIN = np.uint64(63)
_EVERY_2ND = np.uint64(0x5555555555555555)
_PAIRS = np.uint64(0x3333333333333333)
_NIBBLES = np.uint64(0x0F0F0F0F0F0F0F0F)
_BYTES = np.uint64(0x0101010101010101)


@njit(cache=True, nogil=True)
def words_for(n: int) -> int:
    """Return how many words hold the numbers from 0 to n."""
    return n // 64 + 1


@njit(cache=True, nogil=True)
def add_bit(words: WordArray, place: np.uint64) -> None:
    """Add a number to the set."""
    words[place >> _SHIFT] |= ONE << (place & _WITHIN)


@njit(cache=True, nogil=True)
def count_bits(word: np.uint64) -> np.int64:
    """Count the bits of a word that are set.

    In pairs, fours and eights side by side; the compiler knows this for the instruction that
    counts bits, where there is one.
    """
    word = word - ((word >> ONE) & _EVERY_2ND)
    word = (word & _PAIRS) + ((word >> np.uint64(2)) & _PAIRS)
    word = (word + (word >> np.uint64(4))) & _NIBBLES
    return np.int64((word * _BYTES) >> np.uint64(56))


@njit(cache=True, nogil=True)
def count_below(words: WordArray, place: np.uint64) -> np.int64:
    """Count the numbers of the set below one."""
    last, part = place >> _SHIFT, (ONE << (place & _WITHIN)) - ONE
    count = np.int64(0)
    for w in range(words.size):  # no branch: which word is the last one cannot be predicted
        word = np.uint64(w)
        whole = _NONE - np.uint64(word < last)
        count += count_bits(words[word] & (whole | (part * np.uint64(word == last))))
    return count


@njit(cache=True, nogil=True)
def first_word(place: np.uint64) -> np.int64:
    """Return the word in which a number is."""
    return np.int64(place >> _SHIFT)


@njit(cache=True, nogil=True)
def bits_from(words: WordArray, w: int, place: np.uint64) -> np.uint64:
    """Return word `w`, at or above that of a number, without what is below the number."""
    below = (ONE << (place & _WITHIN)) - ONE
    return np.uint64(words[w] & ~(below * np.uint64(w == first_word(place))))


@njit(cache=True, nogil=True)
def lowest_bit(w: int, word: np.uint64) -> np.uint64:
    """Return the number that the lowest bit of word `w` stands for; there must be one."""
    return (np.uint64(w) << _SHIFT) + np.uint64(count_bits((word & (~word + ONE)) - ONE))
