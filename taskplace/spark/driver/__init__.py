"""What runs on the driver: programs, journal, members, stages, replication."""
