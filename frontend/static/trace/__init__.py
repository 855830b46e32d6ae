"""A traced call on tape: functions become nodes, reads guards and changes effects, all of it one recording.

Invariant: the room of the observer, which runs the user's code, is above; nothing here imports it.
"""
