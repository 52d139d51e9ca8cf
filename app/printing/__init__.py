"""Results as tables and lines of text: for terminals, notebooks and as CSV."""
