"""From a graph to something that runs: passes, plan and program, made or found on disk, and the memory they take.

Invariant: a graph comes in; which recording, call or step it is of does not matter here.
"""
