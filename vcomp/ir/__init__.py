"""Reliability of information retrieval experiments, from a topic × system matrix of scores."""

from vcomp._doors import front_door

__getattr__, __dir__, __all__ = front_door(__name__, __file__)
