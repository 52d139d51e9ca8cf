"""The fusion rules FUSE-1 to FUSE-20 and the start rules, one function each (SPEC section 5.3)."""
