"""What Prometheus gets: names, labels and units; and an endpoint that begins and ends."""

import socket
import urllib.error
import urllib.request

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from taskplace.errors import InputError
from taskplace.record import prometheus as endpoint
from taskplace.record.metrics import METRICS
from taskplace.record.prometheus import Collector, check_serving, serve

VALUES = {
    "batches-total": 7,
    "rebalance-latency-avg": 12.5,
    "rebalance-latency-total": 3_000,
    "last-rebalance-seconds-ago": None,
    "copy-lag": [
        {"task": "0_1", "role": "standby", "value": 40},
        {"task": "0_1", "role": "warmup", "value": 900},
    ],
}


def samples(text):
    return {
        (each.name, *sorted(each.labels.items())): each.value
        for family in text_string_to_metric_families(text)
        for each in family.samples
    }


def get(url):
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read().decode()


def registered(read, stream="delays"):
    registry = CollectorRegistry()
    registry.register(Collector(read, stream=stream))
    return registry


def test_samples_have_base_units_and_the_labels_of_the_table():
    text = generate_latest(registered(lambda: VALUES)).decode()
    stream = ("stream", "delays")
    assert samples(text) == {
        ("taskplace_batches_total", stream): 7,
        ("taskplace_rebalance_latency_avg_seconds", stream): 0.0125,
        ("taskplace_rebalance_latency_seconds_total", stream): 3,
        ("taskplace_copy_lag", ("role", "standby"), stream, ("task", "0_1")): 40,
        ("taskplace_copy_lag", ("role", "warmup"), stream, ("task", "0_1")): 900,
    }, "what is not known has no sample"
    for metric in METRICS:
        assert f"# HELP {metric.exported} {metric.doc}\n" in text
        assert f"# TYPE {metric.exported} {metric.kind}\n" in text


def test_the_endpoint_listens_on_loopback_until_it_is_closed():
    server = serve(lambda: VALUES, stream="delays", port=0)
    assert server.url == f"http://127.0.0.1:{server.port}/metrics"
    assert 'taskplace_batches_total{stream="delays"} 7.0' in get(server.url)
    again = serve(lambda: VALUES, stream="delays", port=0)
    assert again.port != server.port
    again.close()
    server.close()
    server.close()
    with pytest.raises(urllib.error.URLError):
        get(server.url)


def test_an_error_of_one_scrape_does_not_end_the_endpoint(monkeypatch):
    values = [RuntimeError("not now"), VALUES]

    def read():
        value = values.pop(0)
        if isinstance(value, Exception):
            raise value
        return value

    server = serve(read, stream="delays", port=0)
    try:
        with pytest.raises(urllib.error.HTTPError, match="500"):
            get(server.url)
        assert "taskplace_batches_total" in get(server.url)
    finally:
        server.close()


@pytest.fixture
def taken():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield taken.getsockname()[1]


def test_a_port_in_use_is_named(taken):
    with pytest.raises(InputError, match=rf"^serve_metrics: found '127.0.0.1:{taken} \(.*in use"):
        serve(lambda: VALUES, stream="delays", port=taken)
    with pytest.raises(InputError, match=rf"^report.metrics.port: found '127.0.0.1:{taken} \(.*in use"):
        check_serving("report.metrics.port", port=taken, host="127.0.0.1")


@pytest.mark.parametrize("port", [-1, 65_536, "9404", None, True, 9404.0])
def test_a_port_that_is_none_is_refused(port):
    with pytest.raises(InputError, match=r"^serve_metrics: found .*, expected .* a port up to 65535"):
        serve(lambda: VALUES, stream="delays", port=port)


@pytest.mark.parametrize("host", ["", None, 127, "203.0.113.1"])
def test_a_host_that_is_not_here_is_refused(host):
    with pytest.raises(InputError, match=r"^serve_metrics"):
        serve(lambda: VALUES, stream="delays", port=0, host=host)


def test_without_the_extra_the_error_names_it(monkeypatch):
    monkeypatch.setattr(endpoint, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"report.metrics.port: .*pip install 'taskplace\[metrics\]'"):
        check_serving("report.metrics.port", port=0, host="127.0.0.1")
    with pytest.raises(InputError, match=r"serve_metrics: .*taskplace\[metrics\]"):
        serve(lambda: VALUES, stream="delays", port=0)
