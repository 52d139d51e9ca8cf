"""Tests of shape units and parameter tables."""
