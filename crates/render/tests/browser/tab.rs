//! A tab of a real Chromium, driven by chromedriver over WebDriver; what happens in it is told in blocking calls.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fantoccini::wd::{Capabilities, WebDriverCompatibleCommand};
use fantoccini::{Client, ClientBuilder, Locator};
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

/// What is waited for comes within milliseconds; this long only on a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(120);
const REMEDY: &str = "`tools/deps.sh test` installs the packages chromium and chromium-driver";

/// chromedriver, until it is dropped.
pub(crate) struct Driver {
    process: Child,
    address: String,
}

impl Driver {
    pub(crate) fn start() -> Driver {
        let mut process = Command::new("chromedriver")
            .arg("--port=0")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("cannot run chromedriver: {error}; {REMEDY}"));
        let stdout = BufReader::new(process.stdout.take().expect("it is piped"));
        let mut lines = stdout.lines().map_while(Result::ok);
        let port = lines
            .find_map(|line| {
                let port = line.split_once("started successfully on port ")?.1;
                Some(port.trim_end_matches('.').to_owned())
            })
            .expect("chromedriver says its port");
        // It goes on writing: nobody must be missing who reads.
        std::thread::spawn(move || lines.for_each(drop));
        Driver {
            process,
            address: format!("http://127.0.0.1:{port}"),
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A browser of its own with one page.
pub(crate) struct Tab {
    runtime: Runtime,
    client: Client,
    /// Of the pages that were opened.
    urls: Vec<String>,
}

impl Tab {
    /// `fragment` is "" or "#finding-1".
    pub(crate) fn open(driver: &Driver, page: &Path, fragment: &str, width: u32) -> Tab {
        let tab = Tab::blank(driver, width);
        tab.open_page(page, fragment)
    }

    pub(crate) fn blank(driver: &Driver, width: u32) -> Tab {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        let client = runtime.block_on(async {
            let mut builder = ClientBuilder::new(HttpConnector::new());
            builder.capabilities(capabilities());
            builder.connect(&driver.address).await
        });
        let client = client.unwrap_or_else(|error| panic!("cannot start Chromium: {error}; {REMEDY}"));
        let tab = Tab {
            runtime,
            client,
            urls: Vec::new(),
        };
        tab.resize(width);
        tab
    }

    pub(crate) fn open_page(mut self, page: &Path, fragment: &str) -> Tab {
        let url = format!("file://{}", page.display());
        self.runtime
            .block_on(self.client.goto(&format!("{url}{fragment}")))
            .expect("the page opens");
        self.urls.push(url);
        self
    }

    pub(crate) fn reload(&mut self) {
        self.runtime
            .block_on(self.client.refresh())
            .expect("the page opens again");
        self.urls.extend(self.urls.last().cloned());
    }

    pub(crate) fn resize(&self, width: u32) {
        self.devtools(
            "Emulation.setDeviceMetricsOverride",
            json!({"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false}),
        );
    }

    /// What the user prefers: "light" or "dark" colours, "screen" or "print".
    pub(crate) fn prefer(&self, colours: &str, medium: &str) {
        let features = json!([{"name": "prefers-color-scheme", "value": colours}]);
        self.devtools(
            "Emulation.setEmulatedMedia",
            json!({"media": medium, "features": features}),
        );
    }

    /// What the script returns.
    pub(crate) fn run(&self, script: &str) -> Value {
        self.runtime
            .block_on(self.client.execute(script, Vec::new()))
            .unwrap_or_else(|error| panic!("{script}: {error}"))
    }

    /// The text of the first element.
    pub(crate) fn text(&self, selector: &str) -> String {
        match self.run(&format!("return document.querySelector({selector:?})?.textContent")) {
            Value::String(text) => text,
            other => panic!("{selector}: {other}"),
        }
    }

    /// The texts of all that can be seen of these.
    pub(crate) fn texts(&self, selector: &str) -> Vec<String> {
        let script = format!(
            "return [...document.querySelectorAll({selector:?})].filter((one) => one.checkVisibility()).map((one) => one.textContent)"
        );
        serde_json::from_value(self.run(&script)).expect("texts")
    }

    /// Until the script returns something true.
    pub(crate) fn wait(&self, script: &str) {
        let start = Instant::now();
        loop {
            let value = self.run(&format!("return Boolean({script})"));
            if value == Value::Bool(true) {
                return;
            }
            assert!(start.elapsed() < PATIENCE, "never became true: {script}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// With the mouse, as a user would: what is covered by something else cannot be clicked.
    pub(crate) fn click(&self, selector: &str) {
        self.runtime
            .block_on(async {
                let element = self.client.find(Locator::Css(selector)).await?;
                element.click().await
            })
            .unwrap_or_else(|error| panic!("cannot click {selector}: {error}"));
    }

    /// On the keyboard, to whatever has the focus.
    pub(crate) fn press(&self, keys: &str) {
        self.runtime
            .block_on(async { self.client.active_element().await?.send_keys(keys).await })
            .unwrap_or_else(|error| panic!("cannot press {keys:?}: {error}"));
    }

    /// Chooses an option as a script of the user would: the list of options is no part of the page.
    pub(crate) fn choose(&self, selector: &str, value: &str) {
        self.run(&format!(
            "const one = document.querySelector({selector:?}); one.value = {value:?}; one.dispatchEvent(new Event('change', {{bubbles: true}}))"
        ));
    }

    /// A command of Chromium's own protocol.
    pub(crate) fn devtools(&self, command: &str, parameters: Value) -> Value {
        self.command("goog/cdp/execute", json!({"cmd": command, "params": parameters}))
    }

    fn command(&self, path: &'static str, body: Value) -> Value {
        self.runtime
            .block_on(self.client.issue_cmd(Extension { path, body }))
            .unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    /// Keeps what can be seen, for people: `target/tmp/html-report/NAME.png`.
    pub(crate) fn keep_picture(&self, name: &str) {
        let picture = self
            .runtime
            .block_on(self.client.screenshot())
            .expect("a picture of the page");
        let folder = pictures();
        std::fs::create_dir_all(&folder).expect("a folder for pictures");
        std::fs::write(folder.join(name).with_extension("png"), picture).expect("the picture can be kept");
    }

    /// Nothing was written to the console, and nothing but the pages was asked for.
    pub(crate) fn close(self) {
        let console = self.command("se/log", json!({"type": "browser"}));
        assert_eq!(console, json!([]), "the console");
        let log = self.command("se/log", json!({"type": "performance"}));
        let messages = log.as_array().expect("a list").iter().filter_map(|entry| {
            let entry: Value = serde_json::from_str(entry["message"].as_str()?).ok()?;
            Some(entry["message"].clone())
        });
        let requests: Vec<String> = messages
            .filter(|message| message["method"] == "Network.requestWillBeSent")
            .filter_map(|message| Some(message["params"]["request"]["url"].as_str()?.to_owned()))
            .filter(|url| !url.starts_with("data:"))
            .collect();
        assert_eq!(requests, self.urls, "the pages, and nothing else");
    }
}

/// Also after a failure: chromedriver's end does not end the browsers.
impl Drop for Tab {
    fn drop(&mut self) {
        let _ = self.runtime.block_on(self.client.clone().close());
    }
}

pub(crate) fn pictures() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("html-report")
}

fn capabilities() -> Capabilities {
    // The page is our own; a container, or root, cannot have Chromium's sandbox and may have a small /dev/shm.
    let arguments = [
        "--headless=new",
        "--no-sandbox",
        "--disable-dev-shm-usage",
        "--disable-gpu",
        "--force-prefers-reduced-motion",
    ];
    let capabilities = json!({
        "goog:chromeOptions": {"args": arguments},
        "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
    });
    match capabilities {
        Value::Object(map) => map,
        _ => unreachable!("it is an object"),
    }
}

/// A command that only chromedriver has.
#[derive(Debug)]
struct Extension {
    path: &'static str,
    body: Value,
}

impl WebDriverCompatibleCommand for Extension {
    fn endpoint(&self, base: &url::Url, session: Option<&str>) -> Result<url::Url, url::ParseError> {
        base.join(&format!("session/{}/{}", session.unwrap_or_default(), self.path))
    }

    fn method_and_body(&self, _: &url::Url) -> (http::Method, Option<String>) {
        (http::Method::POST, Some(self.body.to_string()))
    }
}
