"""The HTML report in a real browser: checks (`make page`), seconds to open and screenshots (`python -m tests.page`)."""
