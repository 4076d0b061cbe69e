"""A headless Chromium for tests of pages: one per worker, with the network's background work switched off."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)
#: How long a page may take for what a test waits for. A machine that does much else needs more.
PATIENCE_SECONDS = int(os.environ.get("TASKPLACE_BROWSER_SECONDS", "60"))
#: Phones are this wide, or wider.
PHONE = 360


class Browser:
    """A page in Chromium. `requests` are the addresses that it asked for, files and data apart."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    def open(
        self, page: Path | str, *, width: int = 1280, height: int = 900, dark: bool = False, scale: int = 1
    ) -> None:
        """Open a file or an address, in a window of this size, on a system with this theme."""
        self.driver.get("about:blank")  # the page before asks for nothing more, and says nothing more
        self.driver.get_log("browser")
        self.driver.get_log("performance")
        self.resize(width, height, scale)
        theme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [theme]})
        self.driver.get(page if isinstance(page, str) else page.absolute().as_uri())

    def resize(self, width: int, height: int, scale: int = 1) -> None:
        """Give the window a size; narrow ones are phones. `scale`: the pixels of the screen for one of the page."""
        size = {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def script(self, code: str, *arguments: Any) -> Any:
        """Run JavaScript, and return what it returns."""
        return self.driver.execute_script(code, *arguments)

    def all(self, selector: str) -> list[WebElement]:
        """Return the elements that a CSS selector finds."""
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def one(self, selector: str) -> WebElement:
        """Return the first element that a CSS selector finds."""
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def texts(self, selector: str) -> list[str]:
        """Return the texts of elements, also of those that are not in view."""
        read = "return [...document.querySelectorAll(arguments[0])].map((one) => one.textContent.trim())"
        return list(self.script(read, selector))

    def figures(self) -> dict[str, str]:
        """Return the headline figures by their names."""
        read = """return Object.fromEntries([...document.querySelectorAll('.figure')].map((one) =>
          [one.querySelector('dt').textContent, one.querySelector('.value').textContent]))"""
        return dict(self.script(read))

    def document(self) -> dict[str, Any]:
        """Return the JSON document of the page."""
        return dict(json.loads(self.texts("#report")[0]))

    def wait(self, until: Callable[[], Any], seconds: float = PATIENCE_SECONDS) -> Any:
        """Wait until a condition holds, and return its value."""
        return WebDriverWait(self.driver, seconds, poll_frequency=0.05).until(lambda _: until())

    def press(self, *keys: str, on: WebElement | None = None) -> None:
        """Press keys on an element, or where the focus is."""
        (on or self.driver.switch_to.active_element).send_keys(*keys)

    def focus(self) -> str:
        """Return what has the focus: its name or its text."""
        read = "const a = document.activeElement; return a.getAttribute('aria-label') || a.textContent.trim()"
        return str(self.script(read))

    def errors(self) -> list[str]:
        """Return what the console has said since the page was opened: errors and warnings."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] != "INFO"]

    def requests(self) -> list[str]:
        """Return the addresses that the page has asked for, data apart."""
        sent = (json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance"))
        urls = [
            one["params"]["request"]["url"] for one in sent if one["method"] == "Network.requestWillBeSent"
        ]
        return [url for url in urls if not url.startswith("data:")]


@contextmanager
def chromium(profile: Path) -> Iterator[Browser]:
    """Run a Chromium with a profile of its own."""
    options = Options()
    found = {name: shutil.which(name) for name in ("chromium", "chromedriver")}
    if None in found.values():
        raise RuntimeError("chromium and chromedriver are needed on the PATH: run scripts/chromium.sh")
    options.binary_location = found["chromium"]
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(found["chromedriver"]))
    driver.command_executor.client_config.timeout = 2 * PATIENCE_SECONDS
    try:
        yield Browser(driver)
    finally:
        driver.quit()


__all__ = ["PHONE", "ActionChains", "Browser", "By", "Keys", "chromium"]
