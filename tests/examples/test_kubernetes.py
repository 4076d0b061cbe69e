"""The example of Kubernetes: its objects are what Kubernetes takes, and its application is one."""

from __future__ import annotations

import json
from pathlib import Path

import kubernetes_validate
import yaml

from taskplace.cli import main

STREAM = Path(__file__).parents[2] / "conf" / "kubernetes" / "stream.yaml"


def test_the_objects_are_valid_and_the_application_is_ready_to_run(tmp_path, capsys):
    objects = {each["kind"]: each for each in yaml.safe_load_all(STREAM.read_text())}
    for each in objects.values():
        kubernetes_validate.validate(each, "1.31", strict=True)
    app = tmp_path / "app.yaml"
    (tmp_path / "in").mkdir()
    app.write_text(objects["ConfigMap"]["data"]["app.yaml"].replace("/checkpoint/", f"{tmp_path}/"))
    assert main(["run", str(app), "--check"]) == 0, capsys.readouterr().err
    capsys.readouterr()
    assert main(["doctor", str(app), "--output", "json"]) != 1
    findings = json.loads(capsys.readouterr().out)["findings"]
    here = {"checkpoint.dir"}  # a directory of this test, and no volume of all hosts
    assert {each["path"] for each in findings if each["severity"] != "advice"} <= here
    pod = objects["Deployment"]["spec"]["template"]["spec"]
    (driver,) = pod["containers"]
    claims = [
        volume["persistentVolumeClaim"]["claimName"]
        for volume in pod["volumes"]
        if "persistentVolumeClaim" in volume
    ]
    assert claims == [objects["PersistentVolumeClaim"]["metadata"]["name"]]
    assert driver["command"][:2] == ["taskplace", "run"]
