"""Compiled shape units in the cache Redis, shared by all models: compilations read and write them, lists show them."""
