"""The set-up scripts on machines that lack something, played with stand-ins on the PATH."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
BASH = shutil.which("bash") or "/bin/bash"


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


class Machine:
    """A PATH with nothing on it but what a test puts there."""

    def __init__(self, directory):
        self.bin = directory / "bin"
        self.bin.mkdir()

    def command(self, name, body):
        path = self.bin / name
        path.write_text(f"#!{BASH}\n{body}\n")
        path.chmod(0o755)
        return path

    def java(self, version, name="java"):
        return self.command(name, f"echo 'openjdk version \"{version}\" 2025-04-15' >&2")

    def run(self, script, *args, **env):
        return subprocess.run(
            [BASH, ROOT / "scripts" / script, *args],
            env={"PATH": str(self.bin), **env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )


@pytest.mark.parametrize("version", ["17.0.15", "17", "21-ea", "25.0.1"])
def test_a_java_that_will_do_is_not_mentioned(machine, version):
    machine.java(version)
    done = machine.run("java.sh")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(("version", "major"), [("11.0.2", 11), ("1.8.0_392", 8), ("16", 16)])
def test_a_java_that_is_too_old_is_one_clear_message(machine, version, major):
    java = machine.java(version)
    done = machine.run("java.sh")
    assert done.returncode == 1
    first, *rest = done.stderr.splitlines()
    assert first == f"Spark needs Java 17 or newer; found Java {major} ({java})."
    assert "apt-get install openjdk-17-jre-headless" in rest[0]
    assert len(rest) == 2


@pytest.mark.parametrize("body", [None, "echo 'No Java runtime present, requesting install.' >&2; exit 1"])
def test_no_java_and_one_that_does_not_run(machine, body):
    if body is not None:
        machine.command("java", body)
    done = machine.run("java.sh")
    assert done.returncode == 1 and "Spark needs Java 17 or newer; found none." in done.stderr


def test_java_home_comes_first_as_it_does_for_spark(machine, tmp_path):
    machine.java("17.0.1")
    machine.command("apt-get", "echo called >> $0.log")
    done = machine.run("java.sh", JAVA_HOME=str(tmp_path / "jdk"))
    assert done.returncode == 1
    assert f"found none at JAVA_HOME={tmp_path / 'jdk'}" in done.stderr
    assert not (machine.bin / "apt-get.log").exists()  # a package would not change JAVA_HOME


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may install")
def test_root_on_debian_gets_it_installed(machine):
    machine.java("11.0.2")
    good = machine.java("17.0.15", "good-java")
    machine.command(
        "apt-get",
        f'case "$*" in\n  *openjdk-17*) exec {shutil.which("cp")} {good} {machine.bin}/java ;;\nesac',
    )
    done = machine.run("java.sh")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "installing openjdk-17-jre-headless (apt-get)\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may install")
def test_an_installation_that_fails_ends_in_the_message(machine):
    machine.command("apt-get", "echo 'E: no network' >&2; exit 100")
    done = machine.run("java.sh")
    assert done.returncode == 1
    assert "E: no network" in done.stderr
    assert "Spark needs Java 17 or newer; found none." in done.stderr


@pytest.fixture
def project(tmp_path):
    """A copy of what scripts/kafka.sh reads."""
    project = tmp_path / "project"
    shutil.copytree(ROOT / "scripts", project / "scripts")
    (project / "examples" / "kafka").mkdir(parents=True)
    shutil.copy(ROOT / "examples" / "kafka" / "pom.xml", project / "examples" / "kafka")
    return project


@pytest.fixture
def kafka_sh(machine, project):
    """Run the project's scripts/kafka.sh."""
    for tool in ("cp", "flock", "mkdir", "mv", "rm", "tail"):
        (machine.bin / tool).symlink_to(shutil.which(tool))
    return lambda: machine.run(project / "scripts" / "kafka.sh")


#: A Maven that makes one jar, where it is told to.
MAVEN = 'for last; do :; done; directory=${last#-DoutputDirectory=}; mkdir "$directory"; echo jar >"$directory/a.jar"'


def test_the_jars_of_the_broker_are_fetched_once(machine, project, kafka_sh):
    machine.command("mvn", MAVEN)
    done = kafka_sh()
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("fetching the jars of Kafka's broker into var/kafka/jars")
    jars = project / "var" / "kafka" / "jars"
    assert {path.name for path in jars.iterdir()} == {"a.jar", "pom.xml"}
    machine.command("mvn", "exit 1")
    done = kafka_sh()
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_jars_are_fetched_again_for_another_version(machine, project, kafka_sh):
    machine.command("mvn", MAVEN)
    kafka_sh()
    (project / "var" / "kafka" / "jars" / "old.jar").touch()
    pom = project / "examples" / "kafka" / "pom.xml"
    pom.write_text(pom.read_text().replace("4.3.1", "4.3.2"))
    assert "fetching" in kafka_sh().stdout
    assert not (project / "var" / "kafka" / "jars" / "old.jar").exists()


def test_the_jars_of_sparks_kafka_source_are_fetched_once(machine, project, kafka_sh):
    connector = ROOT / "examples" / "kafka" / "connector"
    shutil.copytree(connector, project / "examples" / "kafka" / "connector")
    machine.command("mvn", MAVEN)
    done = machine.run(project / "scripts" / "kafka-connector.sh")
    assert done.stdout.startswith("fetching the jars of Spark's Kafka source into var/kafka-connector/jars")
    machine.command("mvn", "exit 1")
    done = machine.run(project / "scripts" / "kafka-connector.sh")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_jars_that_cannot_be_fetched(machine, project, kafka_sh):
    machine.command("mvn", f"{MAVEN}; echo 'Could not resolve'; exit 1")
    for _ in range(2):
        done = kafka_sh()
        assert done.returncode == 1
        assert "Could not resolve" in done.stderr
        assert "the whole output is in var/kafka/maven.log" in done.stderr
        assert not (project / "var" / "kafka" / "jars").exists()


def test_no_maven_is_one_clear_message(kafka_sh):
    done = kafka_sh()
    assert done.returncode == 1
    first, remedy = done.stderr.splitlines()
    assert first == "The jars of Kafka's broker are fetched by Maven; found no mvn on the PATH."
    assert "apt-get install maven" in remedy


@pytest.fixture
def streams_sh(machine, project, kafka_sh):
    """Run the project's scripts/kafka-streams.sh, with a `javac` on the PATH."""
    shutil.copytree(ROOT / "benchmarks" / "kafka_streams", project / "benchmarks" / "kafka_streams")
    machine.command("javac", "exit 1")  # Maven's compiler does not use the command
    return lambda: machine.run(project / "scripts" / "kafka-streams.sh")


def test_kafka_streams_is_built_again_for_another_source(machine, project, streams_sh):
    machine.command("mvn", MAVEN.replace("-DoutputDirectory", "-Dbenchmark.directory"))
    assert streams_sh().stdout.startswith("fetching the jars of Kafka Streams into var/kafka-streams/jars")
    done = streams_sh()
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    source = project / "benchmarks" / "kafka_streams" / "Instance.java"
    source.write_text(source.read_text() + "// another\n")
    assert "fetching" in streams_sh().stdout
    assert (project / "var" / "kafka-streams" / "jars" / "Instance.java").read_text() == source.read_text()


def test_no_java_compiler_is_one_clear_message(machine, streams_sh):
    (machine.bin / "javac").unlink()
    done = streams_sh()
    assert done.returncode == 1
    assert "is compiled by javac; found none on the PATH" in done.stderr
    assert "apt-get install openjdk-17-jdk-headless" in done.stderr


def test_setup_without_a_usable_python_says_what_to_install(tmp_path):
    project = tmp_path / "project"
    shutil.copytree(ROOT / "scripts", project / "scripts")
    machine = Machine(tmp_path)
    machine.command("python3", "exit 1")  # too old, or a launcher that runs nothing
    done = subprocess.run(
        [BASH, project / "scripts" / "setup.sh"],
        env={"PATH": str(machine.bin)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "Python 3.11 or newer is needed" in done.stderr
    assert "apt-get install python3 python3-venv" in done.stderr
    assert not (project / ".venv").exists()


def test_quietly_says_ok_or_everything(machine):
    machine.command("good", "echo much; echo ado >&2")
    machine.command("bad", "echo out; echo err >&2; exit 7")
    good = machine.run("quietly.sh", "ruff", "good")
    assert (good.returncode, good.stdout, good.stderr) == (0, "ok      ruff\n", "")
    bad = machine.run("quietly.sh", "mypy", "bad")
    assert (bad.returncode, bad.stdout, bad.stderr) == (7, "", "out\nerr\nFAILED  mypy\n")


def test_make_help_lists_every_target():
    make = shutil.which("make")
    if make is None:
        pytest.skip("make is not installed")
    done = subprocess.run(
        [make, "-C", ROOT, "--no-print-directory", "help"], capture_output=True, text=True, check=True
    )
    listed = {line.split()[1] for line in done.stdout.splitlines()}
    assert listed >= {"run", "test", "test-long", "test-all", "lint", "setup", "clean", "help"}
