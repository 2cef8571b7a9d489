"""Measures of the accuracy of a test collection, one per file.

Each has two methods: ``actual(scores, truth)`` compares a collection with the truth, and
``estimate(scores, n_topics)`` gives the expected accuracy of collections of n topics: by a formula
where there is one, otherwise extrapolated from halves of the topics.
"""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
