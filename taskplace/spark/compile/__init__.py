"""Compiles a topology: what is known of each node's rows, what is refused at the start, and the executors' programs."""
