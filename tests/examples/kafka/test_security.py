"""Brokers with users (SCRAM) and TLS: right credentials get in, wrong ones do not, and passwords appear nowhere."""

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from examples.kafka.broker import Brokers

pytestmark = [pytest.mark.kafka, pytest.mark.xdist_group("kafka-security")]  # one worker makes the fixture
SECONDS = 30
RIGHT, WRONG = "right-password", "wrong-password"


@pytest.fixture(scope="module")
def brokers():
    with Brokers(users={"reader": RIGHT}, tls=True) as brokers:
        yield brokers


def asked(brokers, listener, password=RIGHT, *, seconds=SECONDS, **settings):
    """Return the brokers that a client at this listener sees; an error has all that the client reports."""
    errors = []
    client = AdminClient(
        {
            "bootstrap.servers": brokers.listener(listener),
            "security.protocol": listener,
            "log_level": 0,
            "error_cb": errors.append,
            **({"sasl.mechanism": "SCRAM-SHA-512"} if "SASL" in listener else {}),
            **({"sasl.username": "reader", "sasl.password": password} if "SASL" in listener else {}),
            **({"ssl.ca.location": str(brokers.certificate)} if "SSL" in listener else {}),
            **settings,
        }
    )
    try:
        return set(client.list_topics(timeout=seconds).brokers)
    except KafkaException as error:
        client.poll(0)  # has the callback called
        raise KafkaException(*errors, *error.args) from error


@pytest.mark.parametrize("listener", ["PLAINTEXT", "SASL_PLAINTEXT", "SSL", "SASL_SSL"])
def test_each_listener_lets_the_right_client_in(brokers, listener):
    assert asked(brokers, listener) == {1}


@pytest.mark.parametrize("listener", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_a_wrong_password_does_not_get_in(brokers, listener):
    with pytest.raises(KafkaException, match="_AUTHENTICATION"):
        asked(brokers, listener, WRONG, seconds=3)
    assert RIGHT not in brokers.log_end(1, 10_000) and WRONG not in brokers.log_end(1, 10_000)


def test_a_broker_whose_certificate_is_not_trusted_is_refused(brokers):
    with pytest.raises(KafkaException, match="_SSL"):
        asked(brokers, "SSL", seconds=3, **{"ssl.ca.location": None})
