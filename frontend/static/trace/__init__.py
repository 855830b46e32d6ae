"""A traced call on tape: functions become nodes, reads guards and changes effects, all of it one recording.

Invariant: what runs the user's code is above, in the room of the observer; nothing here imports it.
"""
