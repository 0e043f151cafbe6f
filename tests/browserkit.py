"""browserkit.py - headless Chromium for the tests of pages; where it is absent a script that
imports this is skipped."""
import keelkit

try:
    from selenium import webdriver
    from selenium.common.exceptions import WebDriverException
    from selenium.webdriver.chrome.service import Service
    from selenium.webdriver.common.by import By  # noqa: F401
    from selenium.webdriver.support.ui import WebDriverWait
except ImportError:
    keelkit.skip("selenium is not installed")

CHROMIUM = keelkit.need_program("chromium")
DRIVER = keelkit.need_program("chromedriver")


def open_browser(width=420, height=860):
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage",
                 "--disable-gpu", "--no-first-run", "--disable-background-networking",
                 f"--window-size={width},{height}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    # A slow machine's Chromium may be given up by its driver before it is there.
    for _ in range(3):
        try:
            return webdriver.Chrome(options=options, service=Service(DRIVER))
        except WebDriverException as e:
            failure = e
    raise failure


def until(browser, condition, seconds=240):
    WebDriverWait(browser, seconds, 0.05).until(lambda _: condition())
