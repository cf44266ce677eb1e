//! `redlock top`: a screen that shows the current locks and queues until the user quits it.
//!
//! 1. `rows`: the contents of the table. `draw`: the appearance of the screen.
//! 2. This module: the keys, and the terminal.

mod draw;
mod rows;

use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;
use std::{env, mem, process, thread};

use ratatui::DefaultTerminal;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{
    self, DisableBracketedPaste, EnableBracketedPaste, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers,
};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{Clear, ClearType};
use ratatui::style::{Color, Style};
use redlock_sync::{HeldLock, Redlock, SnapshotOptions};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::Signals;

use self::rows::{ORDERS, Row, releasable};
use crate::args::View;
use crate::ending::{Answer, Failure};
use crate::text::escaped;
use crate::watch::Watch;
use crate::{look, queue};

/// The time after which the screen is redrawn without input, so that times in seconds advance.
const DRAWN: Duration = Duration::from_millis(250);

#[derive(Default)]
enum Mode {
    #[default]
    Table,
    Filter,
    Details,
    Confirm(Box<HeldLock>),
}

#[derive(Default)]
struct Screen {
    mode: Mode,
    /// The index of the order in [`ORDERS`].
    order: usize,
    filter: String,
    rows: Vec<Row>,
    /// The index and the name of the selected row. The name is needed since rows change their order.
    at: usize,
    name: Option<String>,
    /// The first visible row.
    offset: usize,
    page: usize,
    /// The result of the last key.
    said: String,
    has_colours: bool,
    /// True if the current question was drawn, or is about to be drawn.
    has_asked: bool,
}

pub(crate) fn top(locks: &Redlock, view: &View) -> Result<Answer, Failure> {
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        return once(locks, &view.pattern);
    }
    // The screen shows problems of servers. Log lines would spoil it.
    log::set_max_level(log::LevelFilter::Off);
    // This catches SIGHUP even if it was ignored, since a screen without its terminal has no use.
    let signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    let watch = Watch::start(locks, &view.pattern, view.every)?;
    let has_continued = Arc::default();
    flag::register(SIGCONT, Arc::clone(&has_continued))?;
    let terminal = begin().inspect_err(|_| restore())?;
    end_with(signals)?;
    let outcome = show(terminal, locks, &watch, &has_continued);
    restore();
    outcome.map(|()| Answer::well(String::new())).map_err(Failure::from)
}

/// Ends the process on a signal. The thread that waits for keys may never return, since its read of a closed terminal
/// never ends.
fn end_with(mut signals: Signals) -> io::Result<()> {
    let wait = move || {
        if signals.forever().next().is_some() {
            restore();
            process::exit(0);
        }
    };
    thread::Builder::new().name("signals".to_owned()).spawn(wait).map(drop)
}

fn begin() -> io::Result<DefaultTerminal> {
    let terminal = ratatui::try_init()?;
    // With bracketed paste, a pasted text is one event instead of many keys. `Terminal::clear` would ask the terminal
    // for its cursor, and wait for the answer.
    execute!(io::stdout(), EnableBracketedPaste, Clear(ClearType::All))?;
    Ok(terminal)
}

fn restore() {
    // If the terminal is closed, nothing has to be restored.
    _ = execute!(io::stdout(), DisableBracketedPaste, Show);
    ratatui::restore();
}

/// Prints all locks, latches and queues once, as text.
fn once(locks: &Redlock, pattern: &str) -> Result<Answer, Failure> {
    let seen = locks.snapshot(&SnapshotOptions::default().pattern(pattern))?;
    let tables = [look::table(&seen.locks, &seen.latches), queue::table(&seen.queues)];
    Ok(Answer::well(format!("{}\n\n{}", seen.health, tables.join("\n"))))
}

fn show(mut terminal: DefaultTerminal, locks: &Redlock, watch: &Watch, has_continued: &AtomicBool) -> io::Result<()> {
    let (tell, told) = mpsc::channel();
    let has_colours = env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let mut screen = Screen { has_colours, ..Screen::default() };
    loop {
        if has_continued.swap(false, Ordering::Relaxed) {
            // While the program was stopped, the shell wrote to the terminal and changed its mode.
            restore();
            terminal = begin()?;
        }
        let latest = watch.look();
        screen.hear(&told, watch);
        screen
            .take(latest.seen.as_deref().map_or_else(Vec::new, |seen| rows::rows(seen, latest.age(), &screen.filter)));
        terminal.draw(|frame| draw::draw(frame, &mut screen, &latest))?;
        let mut wait = DRAWN;
        // Handles all pending events, so that several changes of the window size cause one redraw.
        while event::poll(wait)? {
            wait = Duration::ZERO;
            match event::read()? {
                // Another program may have written to the terminal.
                Event::Key(KeyEvent { code: KeyCode::Char('l'), modifiers: KeyModifiers::CONTROL, .. }) => {
                    terminal.clear()?;
                }
                Event::Key(key) if key.kind != KeyEventKind::Release && screen.key(key, locks, watch, &tell) => {
                    return Ok(());
                }
                Event::Paste(text) => screen.paste(&text),
                _ => {}
            }
            if screen.asks_anew() {
                // A key that was pressed before the question was drawn does not answer it.
                terminal.draw(|frame| draw::draw(frame, &mut screen, &latest))?;
                while event::poll(Duration::ZERO)? {
                    event::read()?;
                }
            }
        }
    }
}

impl Screen {
    /// A style with this colour, unless colours are off. No information is shown by colour alone.
    fn style(&self, colour: Color) -> Style {
        if self.has_colours { Style::new().fg(colour) } else { Style::new() }
    }

    /// Returns true once for each question.
    fn asks_anew(&mut self) -> bool {
        let asks = matches!(self.mode, Mode::Confirm(_));
        let had_asked = mem::replace(&mut self.has_asked, asks);
        asks && !had_asked
    }

    fn chosen(&self) -> Option<&Row> {
        self.rows.get(self.at)
    }

    fn hear(&mut self, told: &Receiver<String>, watch: &Watch) {
        for said in told.try_iter() {
            self.said = said;
            watch.hurry();
        }
    }

    /// Replaces the rows. The selection stays on its lock.
    fn take(&mut self, mut rows: Vec<Row>) {
        if let Some((_, sort)) = ORDERS.get(self.order) {
            sort(&mut rows);
        }
        let same = self.name.as_ref().and_then(|name| rows.iter().position(|row| row.name == *name));
        self.at = same.unwrap_or(self.at).min(rows.len().saturating_sub(1));
        self.rows = rows;
    }

    /// Scrolls so that the selection is visible in `height` rows, and no row stays empty without need.
    fn show(&mut self, height: usize) {
        self.page = height.max(1);
        self.offset = self.offset.min(self.rows.len().saturating_sub(self.page));
        self.offset = self.offset.clamp((self.at + 1).saturating_sub(self.page), self.at);
    }

    fn choose(&mut self, at: usize) {
        self.at = at.min(self.rows.len().saturating_sub(1));
        self.name = self.chosen().map(|row| row.name.clone());
    }

    /// Handles a key. Returns whether the program must end.
    fn key(&mut self, key: KeyEvent, locks: &Redlock, watch: &Watch, tell: &Sender<String>) -> bool {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return key.code == KeyCode::Char('c');
        }
        self.said.clear();
        match (&self.mode, key.code) {
            (Mode::Filter, code) => self.edit(code),
            (Mode::Confirm(_), KeyCode::Char('y')) => self.release(locks, tell),
            // If the lock of the details is gone, another row is selected.
            (Mode::Details, KeyCode::Char('k')) if self.chosen().map(|row| &row.name) == self.name.as_ref() => {
                self.ask_for_release();
            }
            (Mode::Confirm(_) | Mode::Details, _) => self.mode = Mode::Table,
            (Mode::Table, KeyCode::Char('q')) => return true,
            (Mode::Table, KeyCode::Char('s')) => self.order = (self.order + 1) % ORDERS.len(),
            (Mode::Table, KeyCode::Char('/')) => self.mode = Mode::Filter,
            (Mode::Table, KeyCode::Char('r')) => watch.hurry(),
            (Mode::Table, KeyCode::Char('k')) => self.ask_for_release(),
            (Mode::Table, KeyCode::Enter) if self.chosen().is_some() => {
                self.choose(self.at);
                self.mode = Mode::Details;
            }
            (Mode::Table, code) => self.go(code),
        }
        false
    }

    fn go(&mut self, code: KeyCode) {
        match code {
            KeyCode::Up => self.choose(self.at.saturating_sub(1)),
            KeyCode::Down => self.choose(self.at + 1),
            KeyCode::PageUp => self.choose(self.at.saturating_sub(self.page)),
            KeyCode::PageDown => self.choose(self.at + self.page),
            KeyCode::Home => self.choose(0),
            KeyCode::End => self.choose(usize::MAX),
            _ => {}
        }
    }

    fn edit(&mut self, code: KeyCode) {
        match code {
            KeyCode::Char(c) => self.filter.push(c),
            KeyCode::Backspace => _ = self.filter.pop(),
            KeyCode::Enter => self.mode = Mode::Table,
            KeyCode::Esc => {
                self.filter.clear();
                self.mode = Mode::Table;
            }
            _ => {}
        }
    }

    /// Appends the first line of a pasted text to the filter. Elsewhere, a pasted text does nothing.
    fn paste(&mut self, text: &str) {
        if matches!(self.mode, Mode::Filter) {
            self.filter.extend(text.trim().chars().take_while(|c| !c.is_control()));
        }
    }

    fn ask_for_release(&mut self) {
        let Some(row) = self.chosen() else { return };
        match releasable(row).cloned() {
            Ok(held) => {
                self.choose(self.at);
                self.mode = Mode::Confirm(Box::new(held));
            }
            Err(why) => self.said = why.to_owned(),
        }
    }

    /// Releases the lock on another thread, so that the screen stays responsive while a server does not answer.
    fn release(&mut self, locks: &Redlock, tell: &Sender<String>) {
        let Mode::Confirm(held) = std::mem::replace(&mut self.mode, Mode::Table) else { return };
        self.said = format!("releasing {}", escaped(&held.name));
        let (locks, tell) = (locks.clone(), tell.clone());
        let release = move || {
            let name = escaped(&held.name);
            let said = match locks.mutex(&held.name).force_unlock(&held.holder) {
                Ok(true) => format!("released {name}"),
                Ok(false) => format!("{name} is not held by that holder any more"),
                Err(error) => error.to_string(),
            };
            _ = tell.send(said);
        };
        if let Err(error) = thread::Builder::new().name("release".to_owned()).spawn(release) {
            self.said = error.to_string();
        }
    }
}
