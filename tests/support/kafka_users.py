"""Users of a broker: the options of their clients, and what access control lists allow them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from examples.kafka.broker import Brokers

SECONDS = 60


def credentials(brokers: Brokers, listener: str, user: str, password: Path) -> dict[str, Any]:
    """Return the options of a client at a listener. `password`: the file that has it."""
    return {
        "security.protocol": listener.lower(),
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": user,
        "sasl.password_file": str(password),
        **({"ssl.ca.location": str(brokers.certificate)} if "SSL" in listener else {}),
    }


def allow(brokers: Brokers, user: str, kind: str, name: str, *operations: str, prefix: bool = False) -> None:
    """Allow a user operations on a resource, and wait until the broker knows. `kind`: TOPIC, GROUP, ..."""
    pattern = ResourcePatternType.PREFIXED if prefix else ResourcePatternType.LITERAL
    of = (ResourceType[kind], name, pattern, f"User:{user}", "*")
    wanted = [AclBinding(*of, AclOperation[each], AclPermissionType.ALLOW) for each in operations]
    admin = AdminClient({"bootstrap.servers": brokers.bootstrap, "log_level": 0})
    for future in admin.create_acls(wanted).values():
        future.result(SECONDS)
    known = AclBindingFilter(*of, AclOperation.ANY, AclPermissionType.ANY)
    deadline = time.monotonic() + SECONDS
    while not set(wanted) <= set(admin.describe_acls(known).result(SECONDS)):
        if time.monotonic() > deadline:
            raise TimeoutError(f"the broker does not know what {user} may do after {SECONDS} s")
        time.sleep(0.05)
