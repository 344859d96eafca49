"""Metrics, matchers and reports: a model measured on a dataset."""
