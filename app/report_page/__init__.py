"""One self-contained HTML page of a plan, its report and the pictures of its tilings (UI-3).

In: the documents of a compilation, just made or saved. Out: text of an HTML file that makes no request. Nothing here
compiles, and no text of a model becomes markup.
"""
