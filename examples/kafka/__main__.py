"""Starts and stops Kafka brokers in the background: `python -m examples.kafka up`, `down`, `serve` or `with`."""

import sys

from examples.kafka.background import main

sys.exit(main())
