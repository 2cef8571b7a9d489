"""Data drawn again: replicates of a fit from its own components, and new responses."""
