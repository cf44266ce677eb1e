//! A real terminal: the test sends keys and reads the screen.

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use redlock_tests::{Server, eventually, find};

use crate::LONG;

/// A terminal of tmux. It exists until it is dropped.
pub(crate) struct Terminal {
    socket: String,
}

impl Terminal {
    /// Runs `redlock` with these arguments. A last line shows the exit code.
    pub(crate) fn start(servers: &[Server], size: (u32, u32), environment: &str, args: &str) -> Terminal {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let socket = format!("redlock-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let nodes: Vec<String> = servers.iter().map(|server| format!("--node {}", server.url())).collect();
        let program = env!("CARGO_BIN_EXE_redlock");
        let run = format!(
            "unset {}; REDLOCK_NODE_TIMEOUT=900ms {environment} {program} {} {args}; echo \"ended $?\"; exec sleep 600",
            find::OF_TESTS.join(" "),
            nodes.join(" ")
        );
        let terminal = Terminal { socket };
        let (width, height) = (size.0.to_string(), size.1.to_string());
        terminal.tmux(&["-f", "/dev/null", "new-session", "-d", "-x", &width, "-y", &height, "sh", "-c", &run]);
        terminal
    }

    pub(crate) fn tmux(&self, args: &[&str]) -> String {
        let output = Command::new("tmux").args(["-u", "-L", &self.socket]).args(args).output();
        let output = output.unwrap_or_else(|error| panic!("tmux has to be installed: {error}"));
        assert!(output.status.success(), "tmux {args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    pub(crate) fn keys(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"], keys].concat());
    }

    /// Pastes a text, in brackets if the program asked for them.
    pub(crate) fn paste(&self, text: &str) {
        self.tmux(&["set-buffer", text]);
        self.tmux(&["paste-buffer", "-p"]);
    }

    pub(crate) fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    /// Waits until all of these texts are on the screen, and returns the screen.
    pub(crate) fn until(&self, all: &[&str]) -> String {
        let has = |screen: &str| all.iter().all(|part| screen.contains(part));
        let mut last = String::new();
        let wait = || eventually(&format!("{all:?} is on the screen"), LONG, || has(&self.screen()));
        let waited = std::panic::catch_unwind(std::panic::AssertUnwindSafe(wait));
        last.push_str(&self.screen());
        assert!(waited.is_ok(), "{all:?} is not on\n{last}");
        last
    }

    pub(crate) fn resize(&self, width: u32, height: u32) {
        self.tmux(&["resize-window", "-x", &width.to_string(), "-y", &height.to_string()]);
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        _ = Command::new("tmux").args(["-L", &self.socket, "kill-server"]).output();
    }
}
