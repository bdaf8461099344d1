//! The page at `/ui` in a real browser: Chromium without a window, by the DevTools protocol over two pipes.

use super::Server;
use crate::cluster::Cluster;
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::pipe::pipe;
use serde_json::{Value, json};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Maximum wait for the page; only a failing test waits that long.
const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

/// A browser with one page.
struct Browser {
    child: Child,
    commands: File,
    answers: BufReader<File>,
    session: String,
    count: u64,
    /// Errors and warnings of the page.
    complaints: Vec<String>,
    _home: tempfile::TempDir,
}

impl Browser {
    /// Starts it; `None` where there is none.
    fn start() -> Option<Browser> {
        let home = tempfile::tempdir().expect("a folder");
        let (their_input, commands) = pipe().expect("a pipe");
        let (answers, their_output) = pipe().expect("a pipe");
        let inherit = |fd: &OwnedFd| fcntl_setfd(fd, FdFlags::empty()).expect("inherited");
        let keep = |fd: &OwnedFd| fcntl_setfd(fd, FdFlags::CLOEXEC).expect("kept");
        inherit(&their_input);
        inherit(&their_output);
        keep(&commands);
        keep(&answers);
        // The protocol is spoken at descriptors 3 and 4, which may be the pipes' own. `sh` knows descriptors of one digit only.
        let (input, output) = (their_input.as_raw_fd(), their_output.as_raw_fd());
        let script = format!("exec 200<&{input} 201>&{output}; exec \"$@\" 3<&200 4>&201");
        let mut command = Command::new("bash");
        command.args([
            "-c",
            &script,
            "bash",
            "chromium",
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
        ]);
        command.args([
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
        ]);
        command.arg(format!("--user-data-dir={}", home.path().display()));
        command.args(["--remote-debugging-pipe", "about:blank"]).env("HOME", home.path()).env("TMPDIR", home.path());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().expect("bash runs");
        drop((their_input, their_output));
        let (commands, answers) = (File::from(commands), BufReader::new(File::from(answers)));
        let (session, complaints) = (String::new(), Vec::new());
        let mut browser = Browser { child, commands, answers, session, count: 0, complaints, _home: home };
        let target = browser.send("Target.createTarget", &json!({"url": "about:blank"}));
        let target = json!({"targetId": target["targetId"], "flatten": true});
        browser.session = browser.send("Target.attachToTarget", &target)["sessionId"].as_str()?.to_owned();
        for domain in ["Page.enable", "Runtime.enable", "Log.enable"] {
            browser.send(domain, &json!({}));
        }
        Some(browser)
    }

    fn send(&mut self, method: &str, parameters: &Value) -> Value {
        self.count += 1;
        let mut command = json!({"id": self.count, "method": method, "params": parameters});
        if !self.session.is_empty() {
            command["sessionId"] = self.session.as_str().into();
        }
        self.commands.write_all(format!("{command}\0").as_bytes()).expect("sent");
        loop {
            let mut text = Vec::new();
            self.answers.read_until(0, &mut text).expect("an answer");
            assert!(text.pop() == Some(0), "the browser ended");
            let answer: Value = serde_json::from_slice(&text).expect("JSON");
            if answer["id"] == self.count {
                assert!(answer["error"].is_null(), "{method}: {}", answer["error"]);
                return answer["result"].clone();
            }
            if matches!(answer["method"].as_str(), Some("Log.entryAdded" | "Runtime.exceptionThrown")) {
                self.complaints.push(answer["params"].to_string());
            }
        }
    }

    /// The value of an expression in the page.
    fn value(&mut self, expression: &str) -> Value {
        let asked = json!({"expression": expression, "awaitPromise": true, "returnByValue": true});
        let answer = self.send("Runtime.evaluate", &asked);
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {answer}");
        answer["result"]["value"].clone()
    }

    #[track_caller]
    fn until(&mut self, expression: &str) {
        let until = Instant::now() + WAIT_TIMEOUT;
        // The page may still be another one.
        let asked = format!("(() => {{ try {{ return {expression}; }} catch {{ return false; }} }})()");
        while self.value(&asked) != json!(true) {
            let body = self.value("document.body ? document.body.innerText : ''");
            assert!(Instant::now() < until, "never: {expression}\n{body}\n{:?}", self.complaints);
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn go_to(&mut self, address: &str) {
        self.send("Page.navigate", &json!({"url": address}));
    }

    /// Types a key into the focused element.
    fn press(&mut self, key: &str) {
        for kind in ["keyDown", "keyUp"] {
            let text = if kind == "keyDown" && key.len() == 1 { key } else { "" };
            self.send("Input.dispatchKeyEvent", &json!({"type": kind, "key": key, "text": text}));
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It may have ended.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Whether the browser is there.
fn is_installed() -> bool {
    let version = Command::new("chromium").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    version.is_ok_and(|status| status.success())
}

/// Clicks on the first element of a selector whose text contains a word.
fn click(selector: &str, word: &str) -> String {
    format!("[...document.querySelectorAll({selector:?})].find((one) => one.textContent.includes({word:?})).click()")
}

#[test]
fn page_shows_changes_and_changes_the_cluster() {
    if !is_installed() {
        return skip!("chromium is not installed");
    }
    let cluster = Cluster::new();
    cluster.ok("create deployment web --image=busybox");
    cluster.ok("create configmap hostile");
    let server = Server::start(&cluster, &[]);
    let mut browser = Browser::start().expect("a browser");
    browser.send(
        "Emulation.setDeviceMetricsOverride",
        &json!({"width": 375, "height": 700, "deviceScaleFactor": 1, "mobile": true}),
    );
    browser.go_to(&format!("http://{}/ui#token={}", server.address, server.token));
    browser.until("document.body.innerText.includes('deployment/web')");
    assert_eq!(browser.value("location.href"), json!(format!("http://{}/ui", server.address)));
    assert_eq!(browser.value("document.documentElement.scrollWidth"), 375, "nothing is wider than a phone");
    // By keys: select, and close the details again.
    browser.value("document.getElementById('tree').focus()");
    browser.press("ArrowDown");
    browser.until("!document.getElementById('details').hidden");
    browser.until("document.getElementById('about').textContent === 'deployment/web'");
    browser.until("document.getElementById('text').innerText.includes('busybox')");
    // Another's change is seen.
    cluster.ok("scale deployment web --replicas=3");
    browser.until("document.getElementById('tree').innerText.includes('0/3')");
    // A change is asked for, and made.
    browser.value(&click("#deeds button", "Scale"));
    browser.until("document.getElementById('ask').open && document.getElementById('ask-input').value === '3'");
    browser.value("document.getElementById('ask-input').value = '2'; document.getElementById('ask-yes').click()");
    browser.until("document.getElementById('tree').innerText.includes('0/2')");
    browser.value(&click("#deeds button", "Delete"));
    browser.until("document.getElementById('ask').open");
    browser.value(&click("#ask button", "Cancel"));
    // The graph, and the steps of a plan.
    browser.value(&click("header button", "Graph"));
    browser.until("document.querySelectorAll('#graph rect').length >= 1");
    browser.value(&click("header button", "Plan"));
    let manifest = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "new"}}).to_string();
    browser.value(&format!("document.getElementById('manifest').value = {}", json!(manifest)));
    browser.value(&click("#plan button", "Plan"));
    browser.until("document.getElementById('plan-end').textContent.includes('1 created')");
    assert_eq!(browser.complaints, Vec::<String>::new(), "the page breaks no policy and throws nothing");
    assert_eq!(cluster.read("deploy/web", "{.spec.replicas}"), "2");
}

#[test]
fn page_asks_for_the_token_and_shows_names_as_text() {
    if !is_installed() {
        return skip!("chromium is not installed");
    }
    let cluster = Cluster::new();
    let reason = "<img src=x onerror=\\\"document.title='broken'\\\">";
    let about = "involvedObject: {kind: Pod, namespace: default, name: a}";
    cluster.apply(&format!(
        "{{apiVersion: v1, kind: Event, metadata: {{name: a.1}}, type: Warning, reason: Bad, message: \"{reason}\", {about}}}"
    ));
    let server = Server::start(&cluster, &[]);
    let mut browser = Browser::start().expect("a browser");
    browser.go_to(&format!("http://{}/ui", server.address));
    browser.until("document.getElementById('ask').open");
    browser.value(&format!("document.getElementById('ask-input').value = {}", json!(server.token)));
    browser.value("document.getElementById('ask-yes').click()");
    browser.until("document.getElementById('state').innerText.includes('pods ready')");
    browser.value(&click("header button", "Events"));
    browser.until("document.getElementById('events').innerText.includes('onerror')");
    assert_eq!(browser.value("document.querySelectorAll('img').length"), 0);
    assert_ne!(browser.value("document.title"), "broken");
}
