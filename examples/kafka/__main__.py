"""Starts and stops Kafka brokers in the background: `python -m examples.kafka up`, `down` or `serve`."""

import sys

from examples.kafka.background import main

sys.exit(main())
