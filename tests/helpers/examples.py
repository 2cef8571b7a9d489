"""How many examples the property tests with expensive examples draw."""

from hypothesis import settings


def examples(n: int) -> int:
    """Return `n`, or as many times as many (one at least) as the profile has of other tests."""
    of_all, usual = settings().max_examples, settings.get_profile("default").max_examples
    return max(n * of_all // usual, 1)
