"""How many examples the property tests with expensive examples draw."""

from hypothesis import settings


def examples(n: int) -> int:
    """Return `n`, or as many times as many as the chosen profile has of other tests."""
    return n * settings().max_examples // settings.get_profile("default").max_examples
