"""The dashboard in headless Chromium, over a server with invented data.

Needs Debian's chromium, chromium-driver and python3-selenium, and the server
that `make test-web` builds first; says so and is skipped where they are missing.
Screenshots of each view are kept in build/test-artefacts/web/.
"""
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.parse

import pytest

webdriver = pytest.importorskip("selenium.webdriver", reason="apt-get install python3-selenium")
from selenium.webdriver.chrome.service import Service  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402

BUILD = pathlib.Path(os.environ.get("DRIFTLINE_BUILD", "build"))
SERVER = BUILD / "tests" / "web-demo-server"
ARTEFACTS = BUILD / "test-artefacts" / "web"
CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")

pytestmark = [
    pytest.mark.skipif(not SERVER.exists(), reason=f"{SERVER} is missing: run make test-web"),
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="apt-get install chromium chromium-driver"),
]


class Server:
    """The demo server; its shift begins `shift_in` seconds after it listens."""

    def __init__(self, port=0, warm=120, shift_in=4, tokens=None):
        self.process = subprocess.Popen([SERVER, str(port), str(warm), str(warm + shift_in),
                                         *([str(tokens)] if tokens else [])],
                                        stdout=subprocess.PIPE, text=True)
        self.url = self.process.stdout.readline().strip()
        assert self.url.startswith("http://127.0.0.1:")

    @property
    def port(self):
        return urllib.parse.urlsplit(self.url).port

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(timeout=10) == 0


@pytest.fixture
def server():
    running = Server()
    yield running
    running.stop()


@pytest.fixture(scope="module")
def browser():
    ARTEFACTS.mkdir(parents=True, exist_ok=True)
    profile = tempfile.mkdtemp()
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    for flag in ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
                 "--disable-background-networking", "--disable-component-update", "--disable-sync",
                 f"--user-data-dir={profile}", "--hide-scrollbars"):
        options.add_argument(flag)
    driver = webdriver.Chrome(service=Service(DRIVER), options=options)
    yield driver
    driver.quit()
    shutil.rmtree(profile, ignore_errors=True)


def wait_for(what, seconds=20):
    """The first true value of what(), which must come within the time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = what()
        if value:
            return value
        time.sleep(0.1)
    raise AssertionError(f"did not come within {seconds} s")


def show(browser, url, width=1440, dark=False):
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {
        "features": [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]})
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
        "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600})
    browser.get("about:blank")
    browser.get_log("browser")  # what an earlier page left
    browser.get(url)


def keep(browser, name, width=1440):
    height = browser.execute_script("return document.documentElement.scrollHeight")
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
        "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600})
    time.sleep(0.5)
    browser.save_screenshot(str(ARTEFACTS / f"{name}.png"))


def text_of(browser, element_id):
    return browser.execute_script("return document.getElementById(arguments[0]).textContent", element_id)


def line(browser, key):
    """A chart's line; read in one step, since charts are drawn anew each second."""
    return browser.execute_script(
        "return document.querySelector(arguments[0])?.getAttribute('d') || ''", f'path[data-key="{key}"]')


def errors(browser):
    return [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]


def test_charts_move_an_alert_appears_and_renewing_clears_it(browser, server):
    show(browser, server.url)
    for key in ("drift_statistic", "events_per_second", "average_precision", "surprise_mean_bits",
                "latency_p99_seconds", "lag_records", "attention_entropy_ratio", "calibration_error",
                "attention_sinks_global", "attention_sinks_local", "attention_sink_movement_ratio"):
        wait_for(lambda: len(line(browser, key)) > 100)
    before = line(browser, "events_per_second")
    wait_for(lambda: line(browser, "events_per_second") != before, 5)
    banner = browser.find_element(By.ID, "banner")
    assert "ready" in text_of(browser, "health")
    wait_for(banner.is_displayed, 40)
    assert "weight" in banner.text
    wait_for(lambda: "raised" in text_of(browser, "alerts"))
    wait_for(lambda: browser.find_elements(By.CSS_SELECTOR, ".alert-mark"))
    # What moved, with histograms of before and now, on the page and in the alert.
    wait_for(lambda: len(browser.find_elements(By.CSS_SELECTOR, "#moved .histogram path")) >= 3)
    browser.find_element(By.CSS_SELECTOR, "#alerts details summary").click()
    assert len(browser.find_elements(By.CSS_SELECTOR, "#alerts details .histogram")) == 3
    alerts = text_of(browser, "alerts")
    for word in ("warning", "critical", "info", "Feed unusually fast", "Quality drop", "Feed stalled"):
        assert word in alerts
    keep(browser, "wide-alert")
    browser.find_element(By.ID, "renew").click()
    browser.find_element(By.ID, "renew-reason").send_keys("new tariff")
    browser.save_screenshot(str(ARTEFACTS / "renew.png"))
    browser.find_element(By.CSS_SELECTOR, "#confirm button[value=renew]").click()
    wait_for(lambda: "alert is cleared" in text_of(browser, "renew-result"))
    wait_for(lambda: not banner.is_displayed())
    wait_for(lambda: "cleared" in text_of(browser, "alerts"))
    wait_for(lambda: "by http 127.0.0.1: new tariff" in text_of(browser, "alerts"))
    # An alert that was opened stays open when the list is drawn anew.
    assert browser.find_elements(By.CSS_SELECTOR, "#alerts details[open]")
    assert errors(browser) == []


def test_what_stands_behind_each_chart_is_a_click_away(browser, server):
    show(browser, server.url)
    wait_for(lambda: len(line(browser, "events_per_second")) > 100)
    links = browser.execute_script(
        "return [...document.querySelectorAll('article .json, section .json')].map(a => a.href)")
    assert len(links) >= len(browser.find_elements(By.CSS_SELECTOR, ".chart")) + 4
    for link in set(links):
        answer = browser.execute_async_script(
            "const done = arguments[1]; fetch(arguments[0]).then(a => a.json()).then(a => done(Object.keys(a).length))",
            link)
        assert answer > 0, link


def test_a_token_is_asked_for_and_exchanged(browser, tmp_path):
    tokens = tmp_path / "tokens"
    watcher, admin = "w" * 32, "a" * 32
    tokens.write_text(f"{watcher} read,subscribe # night shift\n{admin} all # ops\n")
    server = Server(tokens=tokens, shift_in=1000)
    try:
        show(browser, server.url)
        dialog = browser.find_element(By.ID, "login")
        wait_for(dialog.is_displayed)
        assert "ready" not in text_of(browser, "health")
        field = browser.find_element(By.ID, "token")
        field.send_keys("x" * 32, Keys.ENTER)
        wait_for(lambda: "not known" in text_of(browser, "login-problem"))
        browser.save_screenshot(str(ARTEFACTS / "login.png"))
        field.send_keys(watcher, Keys.ENTER)
        wait_for(lambda: not dialog.is_displayed())
        wait_for(lambda: "● ready" in text_of(browser, "health"))
        wait_for(lambda: len(line(browser, "events_per_second")) > 100)
        # May look, may not renew; scripts cannot read what the browser keeps.
        assert not browser.find_element(By.ID, "renew").is_enabled()
        assert browser.execute_script("return document.cookie + JSON.stringify({...localStorage, ...sessionStorage})") == "{}"
        browser.refresh()
        wait_for(lambda: "● ready" in text_of(browser, "health"))
        browser.find_element(By.ID, "sign-out").click()
        wait_for(lambda: browser.find_element(By.ID, "login").is_displayed())
        browser.find_element(By.ID, "token").send_keys(admin, Keys.ENTER)
        wait_for(lambda: browser.find_element(By.ID, "renew").is_enabled())
    finally:
        server.stop()


def test_the_explorer_finds_a_node_and_explains_a_link(browser, server):
    show(browser, server.url)
    field = browser.find_element(By.ID, "node-name")
    field.send_keys("account-1037", Keys.ENTER)
    wait_for(lambda: browser.find_elements(By.CSS_SELECTOR, "#node .picture path.out"))
    assert "account-1037" in text_of(browser, "node")
    rows = browser.find_elements(By.CSS_SELECTOR, "#node .scroll.tall tbody tr")
    assert len(rows) == 20
    browser.find_element(By.CSS_SELECTOR, "#node button.why").click()
    wait_for(lambda: browser.find_elements(By.CSS_SELECTOR, "#node circle.attention"))
    keep(browser, "explorer")
    browser.find_element(By.CSS_SELECTOR, "#node .name-cell button").click()
    wait_for(lambda: browser.find_elements(By.CSS_SELECTOR, "#node .picture path.in"))
    assert browser.execute_script("return location.hash").startswith("#node=shop-")
    assert errors(browser) == []


def test_a_hostile_name_is_only_text(browser, server):
    name = '<img src=x onerror="document.title=\'broken\'">'
    show(browser, server.url + "#node=" + urllib.parse.quote(name))
    wait_for(lambda: name in text_of(browser, "node"))
    assert browser.title == "driftline"
    assert not browser.find_elements(By.CSS_SELECTOR, "#node img")
    assert errors(browser) == []


def test_keyboard_reads_a_chart(browser, server):
    show(browser, server.url)
    wait_for(lambda: len(line(browser, "events_per_second")) > 100)
    browser.execute_script("document.querySelector('.plot').focus()")
    browser.switch_to.active_element.send_keys(Keys.ARROW_LEFT, Keys.ARROW_LEFT)
    wait_for(lambda: "statistic" in browser.execute_script(
        "return document.querySelector('.chart [aria-live]').textContent"))
    assert len(browser.find_elements(By.CSS_SELECTOR, ".cross")) >= 6
    browser.switch_to.active_element.send_keys(Keys.ESCAPE)
    wait_for(lambda: not browser.find_elements(By.CSS_SELECTOR, ".cross"))


def test_nothing_is_asked_of_another_server(browser, server):
    show(browser, server.url)
    wait_for(lambda: len(line(browser, "events_per_second")) > 100)
    asked = browser.execute_script("return performance.getEntriesByType('resource').map(e => e.name)")
    assert len(asked) > 8
    assert all(name.startswith(server.url) for name in asked)


@pytest.mark.parametrize("width", [390, 768, 1440])
@pytest.mark.parametrize("dark", [False, True])
def test_fits_and_follows_the_theme(browser, server, width, dark):
    show(browser, server.url + "#node=account-1000", width, dark)
    wait_for(lambda: len(line(browser, "events_per_second")) > 100)
    wait_for(lambda: browser.find_elements(By.CSS_SELECTOR, "#node .picture path.out"))
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    background = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    brightness = sum(int(part) for part in background.strip("rgb()").split(",")[:3]) / 3
    assert (brightness < 80) == dark
    assert "UTC" in text_of(browser, "zone")
    keep(browser, f"{width}-{'dark' if dark else 'light'}", width)


def test_the_stream_comes_back_after_a_restart(browser):
    first = Server()
    show(browser, first.url)
    wait_for(lambda: "● ready" in text_of(browser, "health"))
    first.stop()
    wait_for(lambda: "connection lost" in text_of(browser, "health"))
    second = Server(port=first.port)
    try:
        wait_for(lambda: "● ready" in text_of(browser, "health"))
        browser.get_log("browser")  # the lost connection is in it
    finally:
        second.stop()
