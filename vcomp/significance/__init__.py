"""Tests: of single components, of one model against another, of fixed effects."""
