//! A real browser without a window. It is driven by the `DevTools` protocol over a pipe.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use redlock_tests::eventually;
use serde_json::{Value, json};

use crate::LONG;

/// A browser with one page. It runs until it is dropped.
pub(crate) struct Browser {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    session: Option<String>,
    next: u64,
    profile: PathBuf,
}

impl Browser {
    pub(crate) fn start() -> Browser {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let profile = std::env::temp_dir().join(format!("redlock-browser-{}-{number}", std::process::id()));
        // The browser uses the file descriptors 3 and 4 for the pipe.
        let run = "exec chromium --headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run \
                   --force-device-scale-factor=1 --user-data-dir=\"$0\" --remote-debugging-pipe about:blank \
                   3<&0 4>&1 0</dev/null 1>/dev/null 2>/dev/null";
        let mut command = Command::new("sh");
        command.arg("-c").arg(run).arg(&profile).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (to, from) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut browser = Browser { child, to, from, session: None, next: 0, profile };
        let target = browser.ask("Target.createTarget", &json!({"url": "about:blank"}))["targetId"].clone();
        let attached = browser.ask("Target.attachToTarget", &json!({"targetId": target, "flatten": true}));
        browser.session = Some(attached["sessionId"].as_str().unwrap().to_owned());
        browser.ask("Runtime.enable", &json!({}));
        browser.ask("Page.enable", &json!({}));
        browser
    }

    fn ask(&mut self, method: &str, params: &Value) -> Value {
        self.next += 1;
        let mut call = json!({"id": self.next, "method": method, "params": params});
        if let Some(session) = &self.session {
            call["sessionId"] = json!(session);
        }
        self.to.write_all(format!("{call}\0").as_bytes()).unwrap();
        loop {
            let mut said = Vec::new();
            self.from.read_until(0, &mut said).unwrap();
            let end = said.pop();
            assert_eq!(end, Some(0), "chromium has to be installed, and ended");
            let said: Value = serde_json::from_slice(&said).unwrap();
            if said["id"] == self.next {
                assert!(said["error"].is_null(), "{method}: {}", said["error"]);
                return said["result"].clone();
            }
        }
    }

    pub(crate) fn go(&mut self, url: &str) {
        self.ask("Page.navigate", &json!({ "url": url }));
    }

    /// Sets the size of the window, and a light or dark colour scheme.
    pub(crate) fn look(&mut self, width: u32, height: u32, scheme: &str) {
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500});
        self.ask("Emulation.setDeviceMetricsOverride", &size);
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.ask("Emulation.setEmulatedMedia", &features);
    }

    /// Returns the value of a JavaScript expression.
    pub(crate) fn value(&mut self, expression: &str) -> Value {
        let call = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let said = self.ask("Runtime.evaluate", &call);
        assert!(said["exceptionDetails"].is_null(), "{expression}: {said}");
        said["result"]["value"].clone()
    }

    /// Waits until the expression is true.
    pub(crate) fn until(&mut self, expression: &str) {
        let is_so = std::cell::RefCell::new(self);
        eventually(expression, LONG, || {
            is_so
                .borrow_mut()
                .value(&format!("(() => {{ try {{ return Boolean({expression}); }} catch {{ return false; }} }})()"))
                == true
        });
    }

    pub(crate) fn key(&mut self, key: &str) {
        let text = if key == "Enter" { "\r" } else { "" };
        let code = match key {
            "Enter" => 13,
            "Tab" => 9,
            _ => 27,
        };
        for kind in ["keyDown", "keyUp"] {
            let text = if kind == "keyDown" { text } else { "" };
            self.ask(
                "Input.dispatchKeyEvent",
                &json!({"type": kind, "key": key, "text": text, "windowsVirtualKeyCode": code}),
            );
        }
    }

    /// Writes a picture of the page to a file.
    pub(crate) fn picture(&mut self, file: &Path) {
        let said = self.ask("Page.captureScreenshot", &json!({"format": "png"}));
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, bytes(said["data"].as_str().unwrap())).unwrap();
    }
}

/// Decodes base64.
fn bytes(text: &str) -> Vec<u8> {
    let value = |digit: u8| match digit {
        b'A'..=b'Z' => digit - b'A',
        b'a'..=b'z' => digit - b'a' + 26,
        b'0'..=b'9' => digit - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let digits: Vec<u8> = text.bytes().filter(|digit| *digit != b'=').map(value).collect();
    let each = digits.chunks(4).flat_map(|four| {
        let all = four.iter().fold(0_u32, |all, digit| all << 6 | u32::from(*digit)) << (6 * (4 - four.len()));
        all.to_be_bytes()[1..four.len()].to_vec()
    });
    each.collect()
}

impl Drop for Browser {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
        _ = fs::remove_dir_all(&self.profile);
    }
}
