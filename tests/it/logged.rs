//! Keeps what the library logs in this process: by thread, and for locks whose names begin with `logged:`.

use std::cell::RefCell;
use std::sync::{LazyLock, Mutex};

use log::{Level, LevelFilter, Log, Metadata, Record};

thread_local!(static BY_THREAD: RefCell<Vec<(Level, String)>> = const { RefCell::new(Vec::new()) });

static BY_NAME: Mutex<Vec<(Level, String)>> = Mutex::new(Vec::new());

struct Keeper;

impl Log for Keeper {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        let line = (record.level(), record.args().to_string());
        if line.1.contains("logged:") {
            BY_NAME.lock().unwrap().push(line.clone());
        }
        BY_THREAD.with_borrow_mut(|lines| lines.push(line));
    }

    fn flush(&self) {}
}

/// Installs the logger that keeps the messages. A process has one logger, so all tests share this one.
pub(crate) fn listen() {
    static INSTALLED: LazyLock<()> = LazyLock::new(|| {
        log::set_logger(&Keeper).unwrap();
        log::set_max_level(LevelFilter::Debug);
    });
    LazyLock::force(&INSTALLED);
}

/// Runs `f`, and returns what this thread logged meanwhile as `LEVEL: text`.
pub(crate) fn logged<R>(f: impl FnOnce() -> R) -> (R, Vec<String>) {
    listen();
    BY_THREAD.take();
    let result = f();
    (result, BY_THREAD.take().into_iter().map(|(level, text)| format!("{level}: {text}")).collect())
}

/// The log messages about a lock whose name begins with `logged:`.
pub(crate) fn said_of(key: &str) -> Vec<(Level, String)> {
    let all = BY_NAME.lock().unwrap();
    all.iter().filter(|(_, text)| text.contains(&format!("`{key}`"))).cloned().collect()
}
