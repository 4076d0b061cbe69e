"""State on one host: rows as bytes, LMDB copies, changelog files. Knows Arrow and LMDB, but no Spark."""
