"""Reports on static functions: comparison with define-by-run, the node to blame, all that ``explain`` shows.

Invariant: nothing here changes what a call returns.
"""
