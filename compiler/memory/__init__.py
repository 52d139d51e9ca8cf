"""Addresses for buffers whose lives are known."""
