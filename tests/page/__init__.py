"""A real browser: checks of pages (`make page`), seconds to open and screenshots (`python -m tests.page`)."""
