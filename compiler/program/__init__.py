"""Programs: what each engine of the accelerator does, address by address (PROG-1 to PROG-4)."""
