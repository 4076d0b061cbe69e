"""Groups of consumers and producers: who is a member, who has which partition, and where a record goes.

- `partitions`: assigns partitions to members (KIP-54, Kafka's assignors, Faust's); the input is in `subscriptions`, the
  output in `assignment`, the algorithms in `sticky`, `classic` and `copartitioned`, and `verify` checks them
- `kafka_python`, `aiokafka`: run them in a Kafka consumer group. Each needs its client, so nothing here imports them
- `membership`: coordinator and members of a group without Kafka (the client-side assignment proposal). Reading order:
  `messages`, `coordinator`, `member`; consumers add `metadata`, `strategies` and `consumer`; `local` runs it on threads
- `partitioner`: chooses the partition of each record (KIP-794)

Workers of Spark import `partitioner`, so this file imports nothing.
"""
