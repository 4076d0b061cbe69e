"""The checkpoint seen from outside: what is in it, whether it is whole, and what its driver is doing.

Reads files only, so it works on any host that sees the checkpoint, without Spark, Arrow or LMDB. It changes nothing,
except for the requests that an operator sends (`asking`).
"""
