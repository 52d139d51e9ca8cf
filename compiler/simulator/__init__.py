"""Running what was compiled: values, address for address, and what they are judged by (SIM-1)."""
