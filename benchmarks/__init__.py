"""Measurements, off by default: ``make bench`` prints each as one table and one line of JSON."""
