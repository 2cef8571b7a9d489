"""Measures of the accuracy of a test collection, one a file.

Each has two methods: ``actual(scores, truth)`` compares a collection with the truth, and
``estimate(scores, n_topics)`` gives the expected accuracy of collections of n topics: by a formula
where there is one, otherwise extrapolated from halves of the topics.
"""

from vcomp._doors import front_door

__getattr__, __dir__, __all__ = front_door(__name__, __file__)
