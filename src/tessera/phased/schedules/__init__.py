"""Schedules: the order in which devices load and compute phases; `tessera.phased.choices` lists them."""
