"""How many examples the property tests with expensive examples draw."""

from hypothesis import settings


def examples(n: int) -> int:
    """Return as many of `n`, at least one, as the profile has of 100."""
    return max(n * settings().max_examples // 100, 1)
