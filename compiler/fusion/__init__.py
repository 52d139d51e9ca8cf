"""Segment to groups: rules (one function each) and strategies."""
