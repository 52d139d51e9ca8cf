"""Loops of programs: their form, proof and time (PROG-5, PROG-6)."""
