"""`make chaos`: the service under kills, freezes, full disks, slow disks, set clocks, damaged files and upgrades."""
