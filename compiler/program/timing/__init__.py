"""The time that commands of a program take: what each asks of the chip, and when it gets it (SIM-2)."""
