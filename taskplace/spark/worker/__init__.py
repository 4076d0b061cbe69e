"""What runs on executors: who am I, one attempt of a task, following a changelog. Imports no Spark."""
