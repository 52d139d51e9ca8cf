"""The documents that a compilation answers with: plan and report, what they say in words and pictures."""
